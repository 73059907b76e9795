//! Convolution by unfolding windows into columns and multiplying matrices, one sample and
//! group at a time. A transposed convolution is the gradient of a convolution with respect
//! to its input, and the other way round: three functions serve both.

use ndarray::parallel::prelude::*;
use ndarray::{Array2, Array3, Array4, ArrayView2, ArrayView3, ArrayViewMut3, Axis, s};

use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site};
use crate::engine::reference::elementwise::{reshaped, zip_broadcast};
use crate::engine::reference::gemm::product_into;
use crate::engine::reference::sum::sum_with_terms;
use crate::engine::reference::tensor::Floats;
use crate::program::Op;

/// Chunks of samples whose weight gradients are summed separately: parallel, and the same
/// whatever the number of threads.
const WEIGHT_CHUNKS: usize = 8;

/// A two-dimensional convolution from `input` to `output` planes.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
    kernel: [usize; 2],
    input: [usize; 2],
    output: [usize; 2],
}

impl Geometry {
    /// Elements of one unfolded window of `channels` channels.
    const fn window(&self, channels: usize) -> usize {
        channels * self.kernel[0] * self.kernel[1]
    }

    const fn positions(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Position in the input that tap `tap` of the window at `at` reads, if inside.
    fn source(&self, axis: usize, at: usize, tap: usize) -> Option<usize> {
        (at * self.stride[axis] + tap * self.dilation[axis])
            .checked_sub(self.padding[axis])
            .filter(|i| *i < self.input[axis])
    }

    /// Calls `visit(row, first column, output row's columns, source plane row)` for each run
    /// of window taps: `row` counts channel and tap, columns count output positions.
    fn each_tap(&self, channels: usize, mut visit: impl FnMut(usize, usize, usize, usize, usize)) {
        for c in 0..channels {
            for ky in 0..self.kernel[0] {
                for kx in 0..self.kernel[1] {
                    let row = (c * self.kernel[0] + ky) * self.kernel[1] + kx;
                    for oy in 0..self.output[0] {
                        if let Some(y) = self.source(0, oy, ky) {
                            visit(row, c, oy, y, kx);
                        }
                    }
                }
            }
        }
    }

    /// Windows of one sample's channels as columns `[channels·kh·kw, positions]`.
    fn unfold(&self, x: ArrayView3<f64>) -> Array2<f64> {
        let mut columns = Array2::zeros((self.window(x.dim().0), self.positions()));
        self.each_tap(x.dim().0, |row, c, oy, y, kx| {
            let source = x.slice(s![c, y, ..]);
            let mut run = columns.slice_mut(s![row, oy * self.output[1]..(oy + 1) * self.output[1]]);
            for (ox, out) in run.iter_mut().enumerate() {
                if let Some(i) = self.source(1, ox, kx) {
                    *out = source[i];
                }
            }
        });
        columns
    }

    /// Adds columns back to where they came from.
    fn fold(&self, columns: ArrayView2<f64>, mut x: ArrayViewMut3<f64>) {
        self.each_tap(x.dim().0, |row, c, oy, y, kx| {
            let mut target = x.slice_mut(s![c, y, ..]);
            let run = columns.slice(s![row, oy * self.output[1]..(oy + 1) * self.output[1]]);
            for (ox, value) in run.iter().enumerate() {
                if let Some(i) = self.source(1, ox, kx) {
                    target[i] += value;
                }
            }
        });
    }

    /// x `[n, c, ..]`, weight `[o, c/g, kh, kw]` to `[n, o, ..]`.
    fn correlate(&self, x: &Array4<f64>, weight: &Array4<f64>) -> Array4<f64> {
        let (n, c) = (x.dim().0, x.dim().1 / self.groups);
        let o = weight.dim().0 / self.groups;
        let mut y = Array4::zeros((n, o * self.groups, self.output[0], self.output[1]));
        let kernels = rows(weight, self.window(c));
        y.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(i, mut y)| {
            let sample = x.index_axis(Axis(0), i);
            y.axis_chunks_iter_mut(Axis(0), o.max(1)).into_par_iter().enumerate().for_each(|(g, y)| {
                let columns = self.unfold(sample.slice(s![g * c..(g + 1) * c, .., ..]));
                let y = y
                    .into_shape_with_order((o, self.positions()))
                    .unwrap_or_else(|_| unreachable!("a new array is row-major"));
                product_into(kernels.slice(s![g * o..(g + 1) * o, ..]), columns.view(), 0.0, y);
            });
        });
        y
    }

    /// Gradient of x: g `[n, o, ..]` to `[n, c, ..]`.
    fn input_gradient(&self, g: &Array4<f64>, weight: &Array4<f64>) -> Array4<f64> {
        let (n, o) = (g.dim().0, g.dim().1 / self.groups);
        let c = weight.dim().1;
        let mut x = Array4::zeros((n, c * self.groups, self.input[0], self.input[1]));
        let kernels = rows(weight, self.window(c));
        x.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(i, mut x)| {
            let sample = g.index_axis(Axis(0), i);
            x.axis_chunks_iter_mut(Axis(0), c.max(1)).into_par_iter().enumerate().for_each(|(group, x)| {
                let g = flat(sample.slice(s![group * o..(group + 1) * o, .., ..]));
                let mut columns = Array2::zeros((self.window(c), self.positions()));
                let kernels = kernels.slice(s![group * o..(group + 1) * o, ..]);
                product_into(kernels.t(), g.view(), 0.0, columns.view_mut());
                self.fold(columns.view(), x);
            });
        });
        x
    }

    /// Gradient of the weight, given cotangent g `[n, o, ..]` and x `[n, c, ..]`.
    fn weight_gradient(&self, g: &Array4<f64>, x: &Array4<f64>) -> Array4<f64> {
        let (n, o) = (g.dim().0, g.dim().1 / self.groups);
        let c = x.dim().1 / self.groups;
        let chunk = n.div_ceil(WEIGHT_CHUNKS).max(1);
        let starts: Vec<usize> = (0..n).step_by(chunk).collect();
        let parts: Vec<Array3<f64>> = starts
            .into_par_iter()
            .map(|start| {
                let mut sum = Array3::zeros((self.groups, o, self.window(c)));
                for i in start..n.min(start + chunk) {
                    let (g, x) = (g.index_axis(Axis(0), i), x.index_axis(Axis(0), i));
                    sum.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(group, sum)| {
                        let g = flat(g.slice(s![group * o..(group + 1) * o, .., ..]));
                        let columns = self.unfold(x.slice(s![group * c..(group + 1) * c, .., ..]));
                        product_into(g.view(), columns.t(), 1.0, sum);
                    });
                }
                sum
            })
            .collect();
        let total = parts.into_iter().reduce(|a, b| a + b);
        total
            .unwrap_or_else(|| Array3::zeros((self.groups, o, self.window(c))))
            .into_shape_with_order((o * self.groups, c, self.kernel[0], self.kernel[1]))
            .unwrap_or_else(|_| unreachable!("the same number of elements"))
    }
}

/// A weight as a matrix with one row an output channel.
fn rows(weight: &Array4<f64>, window: usize) -> ArrayView2<'_, f64> {
    weight
        .view()
        .into_shape_with_order((weight.dim().0, window))
        .unwrap_or_else(|_| unreachable!("weights are row-major here"))
}

/// Channels of one sample as rows.
fn flat(x: ArrayView3<'_, f64>) -> Array2<f64> {
    let (c, h, w) = x.dim();
    x.to_owned().into_shape_with_order((c, h * w)).unwrap_or_else(|_| unreachable!("a row-major copy"))
}

/// Row-major `[a, b, h, w]`; a missing height becomes 1.
fn planes(x: &Floats) -> Array4<f64> {
    let shape = x.shape();
    let (h, w) = if shape.len() == 3 { (1, shape[2]) } else { (shape[2], shape[3]) };
    reshaped(x, &[shape[0], shape[1], h, w])
        .into_owned()
        .into_dimensionality()
        .unwrap_or_else(|_| unreachable!("four dimensions"))
}

/// `conv1d` and `conv2d`.
pub(super) fn conv(op: &Op, x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let (stride, padding, dilation, groups) = match op {
        Op::Conv1d { stride, padding, dilation, groups } => {
            ([1, *stride], [0, *padding], [1, *dilation], *groups)
        }
        Op::Conv2d { stride, padding, dilation, groups } => (*stride, *padding, *dilation, *groups),
        _ => return Err("is not a convolution".to_owned()),
    };
    let (input, weight) = (x.float(0)?, x.float(1)?);
    let (planes_x, planes_w) = (planes(input), planes(weight));
    let (_, _, kh, kw) = planes_w.dim();
    let geometry = Geometry {
        stride,
        padding,
        dilation,
        groups,
        kernel: [kh, kw],
        input: [planes_x.dim().2, planes_x.dim().3],
        output: plane_of(site.shape()),
    };
    let y = reshaped(&geometry.correlate(&planes_x, &planes_w).into_dyn().into_shared(), site.shape());
    let (input, weight) = (input.clone(), weight.clone());
    Ok(Applied::one(biased(y, x.optional(2)?), move |g, want| {
        let planes_g = planes(g);
        let shaped = |v: Array4<f64>, like: &Floats| reshaped(&v.into_dyn().into_shared(), like.shape());
        vec![
            want.then(0, || shaped(geometry.input_gradient(&planes_g, &planes(&weight)), &input)),
            want.then(1, || shaped(geometry.weight_gradient(&planes_g, &planes(&input)), &weight)),
            want.then(2, || bias_gradient(g, want.terms)),
        ]
    }))
}

/// `conv_transpose1d` and `conv_transpose2d`.
pub(super) fn conv_transpose(op: &Op, x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let (stride, padding, dilation, groups) = match op {
        Op::ConvTranspose1d { stride, padding, dilation, groups, .. } => {
            ([1, *stride], [0, *padding], [1, *dilation], *groups)
        }
        Op::ConvTranspose2d { stride, padding, dilation, groups, .. } => {
            (*stride, *padding, *dilation, *groups)
        }
        _ => return Err("is not a transposed convolution".to_owned()),
    };
    let (input, weight) = (x.float(0)?, x.float(1)?);
    let (planes_x, planes_w) = (planes(input), planes(weight));
    let (_, _, kh, kw) = planes_w.dim();
    let geometry = Geometry {
        stride,
        padding,
        dilation,
        groups,
        kernel: [kh, kw],
        input: plane_of(site.shape()),
        output: [planes_x.dim().2, planes_x.dim().3],
    };
    let y = geometry.input_gradient(&planes_x, &planes_w).into_dyn().into_shared();
    let y = reshaped(&y, site.shape());
    let (input, weight) = (input.clone(), weight.clone());
    Ok(Applied::one(biased(y, x.optional(2)?), move |g, want| {
        let planes_g = planes(g);
        let shaped = |v: Array4<f64>, like: &Floats| reshaped(&v.into_dyn().into_shared(), like.shape());
        vec![
            want.then(0, || shaped(geometry.correlate(&planes_g, &planes(&weight)), &input)),
            want.then(1, || shaped(geometry.weight_gradient(&planes(&input), &planes_g), &weight)),
            want.then(2, || bias_gradient(g, want.terms)),
        ]
    }))
}

/// Height (1 if there is none) and width.
fn plane_of(shape: &[usize]) -> [usize; 2] {
    match shape {
        [_, _, w] => [1, *w],
        [_, _, h, w] => [*h, *w],
        _ => [1, 1],
    }
}

fn biased(y: Floats, bias: Option<&Floats>) -> Floats {
    let Some(bias) = bias else { return y };
    let bias = super::norm::per_channel(bias, y.ndim());
    zip_broadcast(&y, &bias, y.shape(), |y, b| y + b).into_shared()
}

/// Sum over samples and positions.
fn bias_gradient(g: &Floats, terms: bool) -> Cotangent {
    let dims: Vec<usize> = (0..g.ndim()).filter(|d| *d != 1).collect();
    sum_with_terms(g, &dims, terms)
}
