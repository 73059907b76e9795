//! Pairwise sums: the error grows with the logarithm of the number of terms, not with its
//! root. The tree depends on the shape alone, so results do not depend on threads.

use ndarray::{ArrayD, IxDyn};
use rayon::prelude::*;

use super::applied::Cotangent;
use super::elementwise::{PARALLEL, contiguous, from_vec, map, reshaped, slice};
use super::tensor::Floats;

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

/// Sum of the rows of a row-major `[rows, width]` slice.
fn sum_rows(values: &[f64], width: usize) -> Vec<f64> {
    const ROWS: usize = 16;
    let rows = values.len() / width;
    if rows <= ROWS {
        let mut sum = vec![0.0; width];
        for row in values.chunks_exact(width) {
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += value;
            }
        }
        return sum;
    }
    let (top, bottom) = values.split_at(rows / 2 * width);
    let (mut a, b) = if values.len() > PARALLEL {
        rayon::join(|| sum_rows(top, width), || sum_rows(bottom, width))
    } else {
        (sum_rows(top, width), sum_rows(bottom, width))
    };
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
    a
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

/// Sum over `dims` and, where asked for, the root of the sum of the squares of its terms.
pub(super) fn sum_with_terms(x: &Floats, dims: &[usize], terms: bool) -> Cotangent {
    let terms = terms.then(|| {
        let squares = map(x, |v| v * v).into_shared();
        sum_over(&squares, dims).mapv_into(f64::sqrt).into_shared()
    });
    Cotangent { value: sum_over(x, dims).into_shared(), terms }
}

/// Sums a cotangent of the broadcast result back to the `shape` of the operand.
pub(super) fn unbroadcast(g: Floats, shape: &[usize], terms: bool) -> Cotangent {
    if g.shape() == shape {
        return g.into();
    }
    let lead = g.ndim() - shape.len();
    let stretched = |d: usize| d < lead || shape[d - lead] == 1 && g.shape()[d] != 1;
    let dims: Vec<usize> = (0..g.ndim()).filter(|d| stretched(*d)).collect();
    let sum = sum_with_terms(&g, &dims, terms);
    Cotangent { value: reshaped(&sum.value, shape), terms: sum.terms.map(|t| reshaped(&t, shape)) }
}
