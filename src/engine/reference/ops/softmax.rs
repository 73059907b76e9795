//! Softmax and its logarithm along one dimension. A row of −∞ gives NaN, as in `ATen`.

use rayon::prelude::*;

use super::axis;
use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site};
use crate::engine::reference::elementwise::{PARALLEL, axis_back, axis_last, contiguous, from_vec, slice};
use crate::engine::reference::sum::{pairwise, pairwise_product};
use crate::engine::reference::tensor::Floats;
use crate::numerics::max_nan;

/// Softmax along `dim`.
pub(super) fn softmax(x: Arguments<'_>, dim: isize) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let dim = axis(dim, input.ndim())?;
    let y = rows(input, dim, softmax_row);
    Ok(Applied::by_result(y, move |g, y, want| {
        vec![want.then(0, || {
            let value = rows_of_two(g, y, dim, |g, y| {
                let sum = pairwise_product(g, y);
                g.iter_mut().zip(y).for_each(|(g, y)| *g = y * (*g - sum));
            });
            let terms = || {
                rows_of_two(g, y, dim, |g, y| {
                    let sum = pairwise_product(g, y);
                    g.iter_mut().zip(y).for_each(|(g, y)| *g = y * g.hypot(sum));
                })
            };
            Cotangent::of(value, want.terms.then(terms))
        })]
    }))
}

/// Logarithm of the softmax along `dim`.
pub(super) fn log_softmax(x: Arguments<'_>, dim: isize, site: &Site<'_>) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let dim = axis(dim, input.ndim())?;
    let y = rows(input, dim, log_softmax_row);
    let terms = site.terms.then(|| {
        rows(input, dim, |row| {
            let (max, log) = shift_and_log(row);
            // The logarithm has the relative error of the sum as its absolute error.
            for v in row {
                *v = (*v - max).hypot(log).hypot(1.0);
            }
        })
    });
    Ok(Applied::by_result(Cotangent::of(y, terms), move |g, y, want| {
        vec![want.then(0, || {
            let value = rows_of_two(g, y, dim, |g, y| {
                let sum = pairwise(g);
                g.iter_mut().zip(y).for_each(|(g, y)| *g -= y.exp() * sum);
            });
            let terms = || {
                rows_of_two(g, y, dim, |g, y| {
                    let sum = pairwise(g);
                    g.iter_mut().zip(y).for_each(|(g, y)| *g = g.hypot(y.exp() * sum));
                })
            };
            Cotangent::of(value, want.terms.then(terms))
        })]
    }))
}

/// Softmax of one row, in place.
pub(super) fn softmax_row(row: &mut [f64]) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, max_nan);
    for v in row.iter_mut() {
        *v = (*v - max).exp();
    }
    let sum = pairwise(row);
    for v in row {
        *v /= sum;
    }
}

/// Logarithm of the softmax of one row, in place.
pub(super) fn log_softmax_row(row: &mut [f64]) {
    let (max, log) = shift_and_log(row);
    for v in row {
        *v = (*v - max) - log;
    }
}

/// Maximum of a row, and the logarithm of the sum of the powers after that shift.
pub(super) fn shift_and_log(row: &[f64]) -> (f64, f64) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, max_nan);
    let powers: Vec<f64> = row.iter().map(|v| (v - max).exp()).collect();
    (max, pairwise(&powers).ln())
}

/// Applies `f` to every row along `dim` of a copy of `x`.
fn rows(x: &Floats, dim: usize, f: impl Fn(&mut [f64]) + Sync + Send) -> Floats {
    let last = contiguous(&axis_last(x.clone(), dim));
    let shape = last.shape().to_vec();
    let mut values = last.into_owned().into_raw_vec_and_offset().0;
    let n = shape.last().copied().unwrap_or(1);
    if n > 0 {
        let fits = values.len() < PARALLEL;
        if fits { values.chunks_mut(n).for_each(f) } else { values.par_chunks_mut(n).for_each(f) }
    }
    axis_back(from_vec(&shape, values).into_shared(), dim)
}

/// Applies `f` to every row of a copy of `a` beside the same row of `b`.
fn rows_of_two(a: &Floats, b: &Floats, dim: usize, f: impl Fn(&mut [f64], &[f64]) + Sync + Send) -> Floats {
    let last = contiguous(&axis_last(a.clone(), dim));
    let other = contiguous(&axis_last(b.clone(), dim));
    let shape = last.shape().to_vec();
    let mut values = last.into_owned().into_raw_vec_and_offset().0;
    let n = shape.last().copied().unwrap_or(1);
    if n > 0 {
        let other = slice(&other);
        if values.len() < PARALLEL {
            values.chunks_mut(n).zip(other.chunks(n)).for_each(|(a, b)| f(a, b));
        } else {
            values.par_chunks_mut(n).zip(other.par_chunks(n)).for_each(|(a, b)| f(a, b));
        }
    }
    axis_back(from_vec(&shape, values).into_shared(), dim)
}
