//! Pooling over the last two dimensions.

use ndarray::ArrayD;
use rayon::prelude::*;

use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site, Terms};
use crate::engine::reference::elementwise::{contiguous, from_vec, slice};
use crate::engine::reference::sum::{pairwise, row_terms};
use crate::engine::reference::tensor::Floats;
use crate::program::Op;

/// Maximum over windows. NaN wins; among equals the first, as in `ATen`; the gradient goes
/// to that element alone.
pub(super) fn max_pool(op: &Op, x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let Op::MaxPool2d { kernel_size, stride, padding, dilation, .. } = op else {
        return Err("is not a maximum pooling".to_owned());
    };
    let input = contiguous(x.float(0)?);
    let taps = |axis: usize, at: usize, size: usize| -> Vec<usize> {
        (0..kernel_size[axis])
            .filter_map(|tap| (at * stride[axis] + tap * dilation[axis]).checked_sub(padding[axis]))
            .filter(|i| *i < size)
            .collect()
    };
    let planes = Planes::new(input.shape(), site.shape());
    let rows: Vec<_> = (0..planes.output[0]).map(|at| taps(0, at, planes.input[0])).collect();
    let columns: Vec<_> = (0..planes.output[1]).map(|at| taps(1, at, planes.input[1])).collect();
    let width = planes.input[1];
    let mut chosen = vec![0usize; planes.count * planes.out_elements()];
    let mut y = vec![0.0; chosen.len()];
    let each = y.par_chunks_mut(planes.out_elements()).zip(chosen.par_chunks_mut(planes.out_elements()));
    each.zip(slice(&input).par_chunks(planes.in_elements())).for_each(|((y, chosen), x)| {
        let windows = rows.iter().flat_map(|rows| columns.iter().map(move |columns| (rows, columns)));
        for ((y, chosen), (rows, columns)) in y.iter_mut().zip(chosen).zip(windows) {
            *y = f64::NEG_INFINITY;
            *chosen = rows.first().zip(columns.first()).map_or(0, |(r, c)| r * width + c);
            for i in rows.iter().flat_map(|r| columns.iter().map(move |c| r * width + c)) {
                if x[i] > *y || x[i].is_nan() {
                    (*y, *chosen) = (x[i], i);
                }
            }
        }
    });
    let shape = input.shape().to_vec();
    Ok(Applied::one(from_vec(site.shape(), y), move |g, want| {
        vec![want.then(0, || {
            planes.scatter(g, &shape, |out, g| {
                let plane = g.0 * planes.out_elements();
                for (g, i) in g.1.iter().zip(&chosen[plane..]) {
                    out[*i] += g;
                }
            })
        })]
    }))
}

/// Mean over windows, fixed or adaptive.
pub(super) fn avg_pool(op: &Op, x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let input = contiguous(x.float(0)?);
    let planes = Planes::new(input.shape(), site.shape());
    let [rows, columns] = [0, 1].map(|axis| spans(op, axis, planes.input[axis], planes.output[axis]));
    let width = planes.input[1];
    let mut y = vec![0.0; planes.count * planes.out_elements()];
    let each = y.par_chunks_mut(planes.out_elements());
    each.zip(slice(&input).par_chunks(planes.in_elements())).for_each(|(y, x)| {
        let windows = rows.iter().flat_map(|r| columns.iter().map(move |c| (r, c)));
        for (y, (r, c)) in y.iter_mut().zip(windows) {
            let lines: Vec<f64> = (r.start..r.end)
                .map(|row| pairwise(&x[row * width + c.start..row * width + c.end]))
                .collect();
            *y = pairwise(&lines) / (r.divisor * c.divisor);
        }
    });
    let terms = site.terms.then(|| {
        let found: Vec<(f64, f64)> = slice(&input)
            .par_chunks(planes.in_elements())
            .flat_map_iter(|x| {
                let windows = rows.iter().flat_map(|r| columns.iter().map(move |c| (r, c)));
                windows.map(move |(r, c)| {
                    let lines = (r.start..r.end).map(|row| &x[row * width + c.start..row * width + c.end]);
                    let window: Vec<f64> = lines.flatten().copied().collect();
                    let (magnitude, coherence) = row_terms(&window);
                    (magnitude / (r.divisor * c.divisor), coherence)
                })
            })
            .collect();
        let (magnitude, coherence) = found.into_iter().unzip();
        let shared = |values| from_vec(site.shape(), values).into_shared();
        Terms { magnitude: shared(magnitude), coherence: Some(shared(coherence)) }
    });
    let shape = input.shape().to_vec();
    Ok(Applied::one(Cotangent::of(from_vec(site.shape(), y), terms), move |g, want| {
        vec![want.then(0, || {
            planes.scatter(g, &shape, |out, (_, g)| {
                let windows = rows.iter().flat_map(|r| columns.iter().map(move |c| (r, c)));
                for (g, (r, c)) in g.iter().zip(windows) {
                    let share = g / (r.divisor * c.divisor);
                    for row in r.start..r.end {
                        let line = &mut out[row * width + c.start..row * width + c.end];
                        for v in line {
                            *v += share;
                        }
                    }
                }
            })
        })]
    }))
}

/// Elements that one window averages along one axis, and what their sum is divided by.
struct Span {
    start: usize,
    end: usize,
    divisor: f64,
}

fn spans(op: &Op, axis: usize, size: usize, count: usize) -> Vec<Span> {
    let span = |at: usize| {
        if let Op::AvgPool2d { kernel_size, stride, padding, count_include_pad, .. } = op {
            let padding = padding[axis];
            // Counted from the start of the padding; the end is cut at the padding's end.
            let from = at * stride[axis];
            let to = (from + kernel_size[axis]).min(size + 2 * padding);
            let start = from.saturating_sub(padding).min(size);
            let end = to.saturating_sub(padding).min(size).max(start);
            let elements = if *count_include_pad { to - from } else { end - start };
            // A window that lies in the padding alone gives 0.
            Span { start, end, divisor: elements.max(1) as f64 }
        } else {
            let (start, end) = (at * size / count, ((at + 1) * size).div_ceil(count));
            Span { start, end, divisor: (end - start) as f64 }
        }
    };
    (0..count).map(span).collect()
}

/// Planes of `[n, c, h, w]` before and after pooling.
#[derive(Clone, Copy)]
struct Planes {
    count: usize,
    input: [usize; 2],
    output: [usize; 2],
}

impl Planes {
    fn new(input: &[usize], output: &[usize]) -> Self {
        Self { count: input[0] * input[1], input: [input[2], input[3]], output: [output[2], output[3]] }
    }

    /// At least 1: chunks of size 0 do not exist.
    fn in_elements(&self) -> usize {
        (self.input[0] * self.input[1]).max(1)
    }

    fn out_elements(&self) -> usize {
        (self.output[0] * self.output[1]).max(1)
    }

    /// The input's cotangent: `f` adds what plane number and cotangents of one plane give.
    fn scatter(
        &self,
        g: &Floats,
        shape: &[usize],
        f: impl Fn(&mut [f64], (usize, &[f64])) + Sync + Send,
    ) -> ArrayD<f64> {
        let g = contiguous(g);
        let mut x = vec![0.0; shape.iter().product()];
        x.par_chunks_mut(self.in_elements())
            .zip(slice(&g).par_chunks(self.out_elements()).enumerate())
            .for_each(|(x, g)| f(x, g));
        from_vec(shape, x)
    }
}
