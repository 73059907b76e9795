//! Pairwise sums: the error grows with the logarithm of the number of terms, not with its
//! root. The tree depends on the shape alone, so results do not depend on threads.

use std::ops::Range;

use ndarray::{ArrayD, IxDyn};
use rayon::prelude::*;

use super::applied::{Cotangent, Terms};
use super::elementwise::{PARALLEL, contiguous, from_vec, slice};
use super::tensor::Floats;

/// Correlation of the rounding errors of equal terms. Adding one number again and again
/// loses a constant part of it within each binade of the partial sum, uniform in half a
/// step: 0.145·n·u of the sum in all, which is c_acc·√(n²/4)·u.
const EQUAL_TERMS: f64 = 0.25;

/// Terms that are added in a plain loop (in eight interleaved partial sums).
const BLOCK: usize = 128;

/// Sum of a slice.
pub(super) fn pairwise(values: &[f64]) -> f64 {
    if values.len() <= BLOCK {
        let (lanes, rest) = values.as_chunks::<8>();
        let mut partial = [0.0; 8];
        for chunk in lanes {
            for (sum, value) in partial.iter_mut().zip(chunk) {
                *sum += value;
            }
        }
        let [a, b, c, d, e, f, g, h] = partial;
        let tail: f64 = rest.iter().sum();
        return ((a + b) + (c + d)) + ((e + f) + (g + h)) + tail;
    }
    let (left, right) = values.split_at((values.len() / 2).next_multiple_of(8));
    if values.len() > PARALLEL {
        let (a, b) = rayon::join(|| pairwise(left), || pairwise(right));
        a + b
    } else {
        pairwise(left) + pairwise(right)
    }
}

/// Sum of the products of two slices, in the tree of [`pairwise`].
pub(super) fn pairwise_product(a: &[f64], b: &[f64]) -> f64 {
    if a.len() <= BLOCK {
        let ((lanes_a, rest_a), (lanes_b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
        let mut partial = [0.0; 8];
        for (a, b) in lanes_a.iter().zip(lanes_b) {
            for ((sum, a), b) in partial.iter_mut().zip(a).zip(b) {
                *sum += a * b;
            }
        }
        let [a, b, c, d, e, f, g, h] = partial;
        let tail: f64 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
        return ((a + b) + (c + d)) + ((e + f) + (g + h)) + tail;
    }
    let half = (a.len() / 2).next_multiple_of(8);
    let ((a, more_a), (b, more_b)) = (a.split_at(half), b.split_at(half));
    pairwise_product(a, b) + pairwise_product(more_a, more_b)
}

/// Sum over rows `rows` of what `add` adds of each to a row of `width` sums.
fn over_rows(rows: Range<usize>, width: usize, add: &(impl Fn(&mut [f64], usize) + Sync)) -> Vec<f64> {
    const ROWS: usize = 16;
    if rows.len() <= ROWS {
        let mut sum = vec![0.0; width];
        for row in rows {
            add(&mut sum, row);
        }
        return sum;
    }
    let middle = rows.start + rows.len() / 2;
    let (top, bottom) = (rows.start..middle, middle..rows.end);
    let (mut a, b) = if rows.len() * width > PARALLEL {
        rayon::join(|| over_rows(top, width, add), || over_rows(bottom, width, add))
    } else {
        (over_rows(top, width, add), over_rows(bottom, width, add))
    };
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
    a
}

/// Sum of the rows of a row-major `[rows, width]` slice.
fn sum_rows(values: &[f64], width: usize) -> Vec<f64> {
    over_rows(0..values.len() / width, width, &|sum, row| {
        for (sum, value) in sum.iter_mut().zip(&values[row * width..]) {
            *sum += value;
        }
    })
}

/// Sum over rows of the products of two row-major `[rows, width]` slices.
pub(super) fn sum_row_products(a: &[f64], b: &[f64], width: usize) -> Vec<f64> {
    over_rows(0..a.len() / width.max(1), width, &|sum, row| {
        let rows = a[row * width..].iter().zip(&b[row * width..]);
        for (sum, (a, b)) in sum.iter_mut().zip(rows) {
            *sum += a * b;
        }
    })
}

/// Sum over `dims` (distinct), which disappear.
pub(super) fn sum_over(x: &Floats, dims: &[usize]) -> ArrayD<f64> {
    let kept: Vec<usize> = (0..x.ndim()).filter(|d| !dims.contains(d)).collect();
    let shape: Vec<usize> = kept.iter().map(|d| x.shape()[*d]).collect();
    let outer: usize = shape.iter().product();
    if x.is_empty() || outer == 0 {
        return ArrayD::zeros(IxDyn(&shape));
    }
    let leading = x.is_standard_layout() && outer > 1;
    if leading && kept.iter().enumerate().all(|(i, d)| *d == x.ndim() - kept.len() + i) {
        return from_vec(&shape, sum_rows(slice(x), outer));
    }
    let order: Vec<usize> = kept.iter().chain(dims).copied().collect();
    let rows = contiguous(&x.clone().permuted_axes(IxDyn(&order)));
    let n = x.len() / outer;
    let rows = slice(&rows);
    let sums = if rows.len() < PARALLEL {
        rows.chunks_exact(n).map(pairwise).collect()
    } else {
        rows.par_chunks_exact(n).map(pairwise).collect()
    };
    from_vec(&shape, sums)
}

/// Sum over `dims` and, where asked for, what is known of its terms.
pub(super) fn sum_with_terms(x: &Floats, dims: &[usize], terms: bool) -> Cotangent {
    let terms = (terms && !x.is_empty()).then(|| terms_over(x, dims));
    Cotangent { value: sum_over(x, dims).into_shared(), terms }
}

/// Terms of the sum over `dims`.
fn terms_over(x: &Floats, dims: &[usize]) -> Terms {
    let kept: Vec<usize> = (0..x.ndim()).filter(|d| !dims.contains(d)).collect();
    let shape: Vec<usize> = kept.iter().map(|d| x.shape()[*d]).collect();
    let order: Vec<usize> = kept.iter().chain(dims).copied().collect();
    let rows = contiguous(&x.clone().permuted_axes(IxDyn(&order)));
    let n = x.len() / shape.iter().product::<usize>().max(1);
    let rows = slice(&rows);
    let found: Vec<(f64, f64)> = if rows.len() < PARALLEL {
        rows.chunks_exact(n).map(row_terms).collect()
    } else {
        rows.par_chunks_exact(n).map(row_terms).collect()
    };
    let (magnitude, coherence) = found.into_iter().unzip();
    let shared = |values| from_vec(&shape, values).into_shared();
    Terms { magnitude: shared(magnitude), coherence: Some(shared(coherence)) }
}

/// Magnitude and coherence of the terms of one sum.
///
/// The square-root law wants rounding errors that are independent. Equal terms that follow
/// each other round alike: while the partial sum stays in one binade every addition loses
/// the same part of the term. The variance of m such errors is that of m errors with a
/// correlation of [`EQUAL_TERMS`], m·(1 + (m − 1)/4), and the partial sums they arise in
/// grow as if the run were one term. Adding 0 is exact, so zeros do not end a run: the
/// gradient of a mean behind a ReLU is a run over all positions.
pub(super) fn row_terms(row: &[f64]) -> (f64, f64) {
    let (mut squares, mut errors) = (0.0, 0.0);
    let mut end = |term: f64, count: f64| {
        squares += (term * count) * (term * count);
        errors += count * (1.0 + (count - 1.0) * EQUAL_TERMS);
    };
    let (mut term, mut count) = (0.0, 0.0);
    for v in row.iter().filter(|v| **v != 0.0) {
        if *v == term {
            count += 1.0;
        } else {
            end(term, count);
            (term, count) = (*v, 1.0);
        }
    }
    end(term, count);
    let growth = errors / row.len().max(1) as f64;
    (squares.sqrt(), if growth > 1.0 { growth.sqrt() } else { 1.0 })
}

/// Sums a cotangent of the broadcast result back to the `shape` of the operand.
pub(super) fn unbroadcast(g: Floats, shape: &[usize], terms: bool) -> Cotangent {
    if g.shape() == shape {
        return g.into();
    }
    let lead = g.ndim() - shape.len();
    let stretched = |d: usize| d < lead || shape[d - lead] == 1 && g.shape()[d] != 1;
    let dims: Vec<usize> = (0..g.ndim()).filter(|d| stretched(*d)).collect();
    sum_with_terms(&g, &dims, terms).reshaped(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_terms_are_independent_and_equal_ones_are_not() {
        let (magnitude, coherence) = row_terms(&[3.0, 4.0]);
        assert_eq!((magnitude, coherence), (5.0, 1.0));
        // Eight equal terms: variance 8·(1 + 7/4) instead of 8.
        let (magnitude, coherence) = row_terms(&[0.5; 8]);
        assert_eq!((magnitude, coherence), (4.0, 2.75f64.sqrt()));
        assert_eq!(row_terms(&[0.0; 8]), (0.0, 1.0));
    }

    #[test]
    fn zeros_do_not_end_a_run_and_do_not_count() {
        let (magnitude, coherence) = row_terms(&[0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 2.0]);
        assert_eq!(magnitude, 13f64.sqrt());
        // 3·(1 + 2/4) + 1 = 5.5 errors of 7 terms: no more than independent ones.
        assert_eq!(coherence, 1.0);
    }

    /// A plain loop in f32 against the scale: what a correct engine may do.
    #[test]
    fn the_error_of_a_plain_loop_follows_the_scale_whatever_repeats() {
        // A linear congruential generator (Knuth's MMIX), its upper bits, between −1 and 1.
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        #[expect(clippy::cast_possible_truncation, reason = "the rounding is the subject")]
        let narrow = |v: f64| v as f32;
        for n in [48_usize, 784, 4096] {
            for run in [1, 4, n / 8, n / 2, n] {
                let trials = 200;
                let total: f64 = (0..trials)
                    .map(|_| {
                        let terms: Vec<f64> = (0..n.div_ceil(run)).map(|_| draw()).collect();
                        let row: Vec<f64> = (0..n).map(|i| terms[i / run]).collect();
                        let exact: f64 = row.iter().sum();
                        let found = row.iter().fold(0.0f32, |sum, v| sum + narrow(*v));
                        let (magnitude, coherence) = row_terms(&row);
                        let scale = if exact.abs() > magnitude { exact.abs() } else { magnitude };
                        let floor = 0.30 * (n as f64).sqrt() * 2f64.powi(-24) * scale * coherence;
                        ((f64::from(found) - exact) / floor).powi(2)
                    })
                    .sum();
                let rms = (total / f64::from(trials)).sqrt();
                assert!((0.6..1.6).contains(&rms), "{n} terms in runs of {run}: {rms} floors");
            }
        }
    }
}
