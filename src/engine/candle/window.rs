//! Windows as gathers: the decompositions of convolution and pooling.
//!
//! `unfold` lays out every window of the last one or two dimensions, `fold` adds such a
//! layout back. Both are one `index_select` or `index_add`, which candle has in every dtype
//! and with a gradient.

use candle_core::{Result, Tensor};

use super::shape::surround;
use super::situation::{constant, indices};

/// Windows along one dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub size: usize,
    pub kernel: usize,
    pub stride: usize,
    pub padding: usize,
    pub dilation: usize,
    /// Number of windows.
    pub count: usize,
}

impl Axis {
    /// First position behind the last window, counted from the start of the padding.
    fn reach(&self) -> usize {
        self.count.saturating_sub(1) * self.stride + self.dilation * self.kernel.saturating_sub(1) + 1
    }

    /// Size with padding, and what the last window needs beyond it.
    fn padded(&self) -> usize {
        (self.size + 2 * self.padding).max(self.reach())
    }

    /// Position read by element `k` of window `w`.
    const fn at(&self, w: usize, k: usize) -> usize {
        w * self.stride + k * self.dilation
    }

    /// How many elements of window `w` lie in `0..limit` of the padded dimension, from `from`.
    pub fn inside(&self, w: usize, from: usize, limit: usize) -> usize {
        (0..self.kernel).filter(|k| (from..limit).contains(&self.at(w, *k))).count()
    }
}

/// Positions in the flattened, padded space: first the window's elements, then the windows.
fn positions(axes: &[Axis]) -> Vec<usize> {
    let mut list = vec![0];
    let steps = axes.iter().map(|axis| axis.kernel).chain(axes.iter().map(|axis| axis.count));
    let strides: Vec<usize> =
        (0..axes.len()).map(|i| axes.iter().skip(i + 1).map(Axis::padded).product()).collect();
    let unit = axes
        .iter()
        .zip(&strides)
        .map(|(axis, stride)| axis.dilation * stride)
        .chain(axes.iter().zip(&strides).map(|(axis, stride)| axis.stride * stride));
    for (steps, unit) in steps.zip(unit) {
        list = list.iter().flat_map(|base| (0..steps).map(move |i| base + i * unit)).collect();
    }
    list
}

fn count(axes: &[Axis], of: impl Fn(&Axis) -> usize) -> usize {
    axes.iter().map(of).product()
}

/// `[n, c, ..]` to `[n, c, elements of a window, windows]`; padding holds `value`.
pub(super) fn unfold(x: &Tensor, axes: &[Axis], value: f64) -> Result<Tensor> {
    let (n, c) = (x.dim(0)?, x.dim(1)?);
    let mut y = x.clone();
    for (i, axis) in axes.iter().enumerate() {
        let after = axis.padded().saturating_sub(axis.size + axis.padding);
        y = surround(&y, i + 2, axis.padding, after, value)?;
    }
    let y = y.reshape((n, c, count(axes, Axis::padded)))?;
    y.index_select(&indices(positions(axes).into_iter(), x)?, 2)?.reshape((
        n,
        c,
        count(axes, |a| a.kernel),
        count(axes, |a| a.count),
    ))
}

/// `[n, c, elements of a window, windows]` added up to `[n, c, ..]`; padding is cut off.
/// `axes` describe the windows of the result.
pub(super) fn fold(columns: &Tensor, axes: &[Axis]) -> Result<Tensor> {
    let (n, c) = (columns.dim(0)?, columns.dim(1)?);
    let flat = columns.reshape((n, c, ()))?;
    let zeros = constant(0.0, &[n, c, count(axes, Axis::padded)], columns)?;
    let index = indices(positions(axes).into_iter(), columns)?;
    let mut shape = vec![n, c];
    shape.extend(axes.iter().map(Axis::padded));
    let mut y = zeros.index_add(&index, &flat, 2)?.reshape(shape)?;
    for (i, axis) in axes.iter().enumerate() {
        y = y.narrow(i + 2, axis.padding, axis.size)?;
    }
    Ok(y)
}
