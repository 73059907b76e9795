//! Convolution by unfolding windows into columns and multiplying matrices, a block of
//! positions of one sample and group at a time. A transposed convolution is the gradient of a convolution with respect
//! to its input, and the other way round: three functions serve both.

use std::ops::Range;

use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, Axis};
use rayon::slice::ParallelSliceMut;

use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site};
use crate::engine::reference::elementwise::{contiguous, from_vec, slice, zip_broadcast};
use crate::engine::reference::gemm::product_into;
use crate::engine::reference::sum::sum_with_terms;
use crate::engine::reference::tensor::Floats;
use crate::program::Op;

/// Parts that work is split into where the samples allow it: parallel, and the same whatever
/// the number of threads.
const PARTS: usize = 8;

/// Row-major `[a, b, h, w]`; a missing height is 1.
pub(super) struct Planes {
    pub(super) values: Floats,
    pub(super) dim: [usize; 4],
}

impl Planes {
    fn new(x: &Floats) -> Self {
        let dim = match *x.shape() {
            [a, b, w] => [a, b, 1, w],
            [a, b, h, w] => [a, b, h, w],
            _ => [0; 4],
        };
        Self { values: contiguous(x), dim }
    }

    /// Elements of the `index`-th of `parts` equal parts.
    fn part(&self, index: usize, parts: usize) -> &[f64] {
        let size = self.values.len() / parts.max(1);
        &slice(&self.values)[index * size..(index + 1) * size]
    }

    const fn size(&self) -> [usize; 2] {
        [self.dim[2], self.dim[3]]
    }
}

/// A two-dimensional convolution from `input` to `output` planes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) groups: usize,
    pub(super) kernel: [usize; 2],
    pub(super) input: [usize; 2],
    pub(super) output: [usize; 2],
}

impl Geometry {
    /// Elements of one unfolded window of `channels` channels.
    pub(super) const fn window(&self, channels: usize) -> usize {
        channels * self.kernel[0] * self.kernel[1]
    }

    pub(super) const fn positions(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Whether every window is one element: nothing to unfold.
    fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// Output positions whose tap `tap` reads inside the input, and what the first reads.
    fn reach(&self, axis: usize, tap: usize) -> (Range<usize>, usize) {
        let offset = tap * self.dilation[axis];
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let first = padding.saturating_sub(offset).div_ceil(stride);
        let end = (self.input[axis] + padding).saturating_sub(offset).div_ceil(stride);
        let end = end.min(self.output[axis]).max(first);
        (first..end, (first * stride + offset).saturating_sub(padding))
    }

    /// Blocks of output rows whose windows are unfolded together, and the positions of a full
    /// one: enough for a product, no more than a cache holds.
    fn blocks(&self, channels: usize) -> (Vec<Range<usize>>, usize) {
        const POSITIONS: usize = 256;
        const ELEMENTS: usize = 1 << 17;
        let [height, width] = self.output;
        let fit = ELEMENTS / self.window(channels).max(1);
        let rows = fit.max(POSITIONS).div_ceil(width.max(1)).max(1);
        let blocks = (0..height).step_by(rows).map(|start| start..height.min(start + rows)).collect();
        (blocks, rows * width)
    }

    /// Calls `visit(start in columns, length, start in x, stride in x)` for every run of
    /// window elements that lie in one row of x and belong to the output rows `block`.
    fn each_run(
        &self,
        channels: usize,
        block: &Range<usize>,
        mut visit: impl FnMut(usize, usize, usize, usize),
    ) {
        let [height, width] = self.input;
        let positions = block.len() * self.output[1];
        for c in 0..channels {
            for ky in 0..self.kernel[0] {
                let (rows, top) = self.reach(0, ky);
                for kx in 0..self.kernel[1] {
                    let (columns, left) = self.reach(1, kx);
                    if columns.is_empty() {
                        continue;
                    }
                    let line = ((c * self.kernel[0] + ky) * self.kernel[1] + kx) * positions;
                    for row in rows.start.max(block.start)..rows.end.min(block.end) {
                        let source_row = c * height + top + (row - rows.start) * self.stride[0];
                        let target = line + (row - block.start) * self.output[1] + columns.start;
                        visit(target, columns.len(), source_row * width + left, self.stride[1]);
                    }
                }
            }
        }
    }

    /// Windows of the output rows `block` as columns `[channels·kh·kw, positions]`.
    fn unfold<'a>(
        &self,
        x: &[f64],
        channels: usize,
        block: &Range<usize>,
        columns: &'a mut Vec<f64>,
    ) -> ArrayView2<'a, f64> {
        let (window, positions) = (self.window(channels), block.len() * self.output[1]);
        columns.clear();
        columns.resize(window * positions, 0.0);
        self.each_run(channels, block, |target, length, source, stride| {
            let run = &mut columns[target..target + length];
            if stride == 1 {
                run.copy_from_slice(&x[source..source + length]);
            } else {
                run.iter_mut().zip(x[source..].iter().step_by(stride)).for_each(|(out, v)| *out = *v);
            }
        });
        matrix(columns, window, positions)
    }

    /// Adds columns back to where they came from.
    fn fold(&self, columns: &[f64], x: &mut [f64], channels: usize, block: &Range<usize>) {
        self.each_run(channels, block, |target, length, source, stride| {
            let run = &columns[target..target + length];
            if stride == 1 {
                x[source..source + length].iter_mut().zip(run).for_each(|(out, v)| *out += v);
            } else {
                x[source..].iter_mut().step_by(stride).zip(run).for_each(|(out, v)| *out += v);
            }
        });
    }

    /// x `[n, c, ..]`, weight `[o, c/g, kh, kw]` to `[n, o, ..]`.
    pub(super) fn correlate(&self, x: &Planes, weight: &Planes) -> Vec<f64> {
        let (n, c, o) = (x.dim[0], x.dim[1] / self.groups, weight.dim[0] / self.groups);
        let (parts, positions) = (n * self.groups, self.positions());
        let mut y = vec![0.0; parts * o * positions];
        let (blocks, width) = self.blocks(c);
        y.par_chunks_mut((o * positions).max(1)).enumerate().for_each(|(i, y)| {
            let x = x.part(i, parts);
            let kernels = matrix(weight.part(i % self.groups, self.groups), o, self.window(c));
            let mut y = matrix_mut(y, o, positions);
            if self.is_pointwise() {
                product_into(&kernels, &matrix(x, c, positions), 0.0, y);
                return;
            }
            let each = y.axis_chunks_iter_mut(Axis(1), width.max(1)).into_par_iter().zip(&blocks);
            each.for_each_init(Vec::new, |columns, (y, block)| {
                product_into(&kernels, &self.unfold(x, c, block, columns), 0.0, y);
            });
        });
        y
    }

    /// Gradient of x: g `[n, o, ..]` to `[n, c, ..]`.
    pub(super) fn input_gradient(&self, g: &Planes, weight: &Planes) -> Vec<f64> {
        let (n, c, o) = (g.dim[0], weight.dim[1], g.dim[1] / self.groups);
        let (parts, positions) = (n * self.groups, self.positions());
        let area = self.input[0] * self.input[1];
        let mut x = vec![0.0; parts * c * area];
        // Few samples are split further, by channels.
        let share = c.div_ceil((PARTS / parts.max(1)).max(1)).max(1);
        let (blocks, width) = self.blocks(share);
        x.par_chunks_mut((c * area).max(1)).enumerate().for_each(|(i, x)| {
            let kernels = matrix(weight.part(i % self.groups, self.groups), o, self.window(c));
            let g = matrix(g.part(i, parts), o, positions);
            if self.is_pointwise() {
                product_into(&kernels.reversed_axes(), &g, 0.0, matrix_mut(x, c, positions));
                return;
            }
            let shares = x.par_chunks_mut(share * area);
            let kernels = kernels.axis_chunks_iter(Axis(1), self.window(share)).into_par_iter();
            shares.zip(kernels).for_each_init(Vec::new, |columns, (x, kernels)| {
                let (channels, window) = (x.len() / area, kernels.ncols());
                for (g, block) in g.axis_chunks_iter(Axis(1), width).zip(&blocks) {
                    columns.resize(window * g.ncols(), 0.0);
                    product_into(&kernels.t(), &g, 0.0, matrix_mut(columns, window, g.ncols()));
                    self.fold(columns, x, channels, block);
                }
            });
        });
        x
    }

    /// Gradient of the weight, given cotangent g `[n, o, ..]` and x `[n, c, ..]`.
    pub(super) fn weight_gradient(&self, g: &Planes, x: &Planes) -> Vec<f64> {
        let (n, c, o) = (g.dim[0], x.dim[1] / self.groups, g.dim[1] / self.groups);
        let (parts, window, positions) = (n * self.groups, self.window(c), self.positions());
        let chunk = n.div_ceil(PARTS).max(1);
        let (blocks, width) = self.blocks(c);
        let starts: Vec<usize> = (0..n).step_by(chunk).collect();
        let sums: Vec<Vec<f64>> = starts
            .into_par_iter()
            .map(|start| {
                let mut sum = vec![0.0; self.groups * o * window];
                sum.par_chunks_mut((o * window).max(1)).enumerate().for_each_init(
                    Vec::new,
                    |columns, (group, sum)| {
                        for i in start..n.min(start + chunk) {
                            let part = i * self.groups + group;
                            let (x, g) = (x.part(part, parts), matrix(g.part(part, parts), o, positions));
                            if self.is_pointwise() {
                                let x = matrix(x, window, positions).reversed_axes();
                                product_into(&g, &x, 1.0, matrix_mut(sum, o, window));
                                continue;
                            }
                            for (g, block) in g.axis_chunks_iter(Axis(1), width.max(1)).zip(&blocks) {
                                let columns = self.unfold(x, c, block, columns).reversed_axes();
                                product_into(&g, &columns, 1.0, matrix_mut(sum, o, window));
                            }
                        }
                    },
                );
                sum
            })
            .collect();
        let total = sums.into_iter().reduce(|mut a, b| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        });
        total.unwrap_or_else(|| vec![0.0; self.groups * o * window])
    }
}

fn matrix(values: &[f64], rows: usize, columns: usize) -> ArrayView2<'_, f64> {
    ArrayView2::from_shape((rows, columns), values)
        .unwrap_or_else(|_| unreachable!("sizes follow from one geometry"))
}

fn matrix_mut(values: &mut [f64], rows: usize, columns: usize) -> ArrayViewMut2<'_, f64> {
    ArrayViewMut2::from_shape((rows, columns), values)
        .unwrap_or_else(|_| unreachable!("sizes follow from one geometry"))
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
    let (x_shape, w_shape) = (input.shape().to_vec(), weight.shape().to_vec());
    let (input, weight) = (Planes::new(input), Planes::new(weight));
    let geometry = Geometry {
        stride,
        padding,
        dilation,
        groups,
        kernel: weight.size(),
        input: input.size(),
        output: plane_of(site.shape()),
    };
    let y = with_terms(site.shape(), geometry.correlate(&input, &weight), site.terms, || {
        geometry.correlate_terms(&input, &weight)
    });
    Ok(Applied::one(biased(y, x.optional(2)?), move |g, want| {
        let planes_g = Planes::new(g);
        vec![
            want.then(0, || {
                with_terms(&x_shape, geometry.input_gradient(&planes_g, &weight), want.terms, || {
                    geometry.input_gradient_terms(&planes_g, &weight)
                })
            }),
            want.then(1, || {
                with_terms(&w_shape, geometry.weight_gradient(&planes_g, &input), want.terms, || {
                    geometry.weight_gradient_terms(&planes_g, &input)
                })
            }),
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
    let (x_shape, w_shape) = (input.shape().to_vec(), weight.shape().to_vec());
    let (input, weight) = (Planes::new(input), Planes::new(weight));
    let geometry = Geometry {
        stride,
        padding,
        dilation,
        groups,
        kernel: weight.size(),
        input: plane_of(site.shape()),
        output: input.size(),
    };
    let y = with_terms(site.shape(), geometry.input_gradient(&input, &weight), site.terms, || {
        geometry.input_gradient_terms(&input, &weight)
    });
    Ok(Applied::one(biased(y, x.optional(2)?), move |g, want| {
        let planes_g = Planes::new(g);
        vec![
            want.then(0, || {
                with_terms(&x_shape, geometry.correlate(&planes_g, &weight), want.terms, || {
                    geometry.correlate_terms(&planes_g, &weight)
                })
            }),
            want.then(1, || {
                with_terms(&w_shape, geometry.weight_gradient(&input, &planes_g), want.terms, || {
                    geometry.weight_gradient_terms(&input, &planes_g)
                })
            }),
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

fn with_terms(shape: &[usize], value: Vec<f64>, wanted: bool, terms: impl FnOnce() -> Vec<f64>) -> Cotangent {
    Cotangent::of(from_vec(shape, value), wanted.then(|| from_vec(shape, terms()).into_shared()))
}

fn biased(y: Cotangent, bias: Option<&Floats>) -> Cotangent {
    let Some(bias) = bias else { return y };
    let Cotangent { value: y, terms } = y;
    let bias = super::norm::per_channel(bias, y.ndim());
    let terms = terms
        .map(|terms| zip_broadcast(&terms.magnitude, &bias, y.shape(), |t, b| t.hypot(*b)).into_shared());
    Cotangent::of(zip_broadcast(&y, &bias, y.shape(), |y, b| y + b), terms)
}

/// Sum over samples and positions.
fn bias_gradient(g: &Floats, terms: bool) -> Cotangent {
    let dims: Vec<usize> = (0..g.ndim()).filter(|d| *d != 1).collect();
    sum_with_terms(g, &dims, terms)
}
