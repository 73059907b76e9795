//! How large the terms of matrix products are, without a second product: the squares of
//! `a @ b`'s terms, Σₖ aᵢₖ²·bₖⱼ², have sums along rows, along columns and in all that cost no
//! more than reading both operands. The magnitudes here have exactly those sums, spread
//! as rowᵢ·columnⱼ/total.

use ndarray::{Array1, Array2, ArrayD, ArrayView2, ArrayViewD, Axis, IxDyn};
use rayon::prelude::*;

use crate::engine::reference::elementwise::{map, reshaped};
use crate::engine::reference::gemm::{matrix, stretched_batches};
use crate::engine::reference::sum::sum_over;
use crate::engine::reference::tensor::Floats;

/// Magnitude of the terms of `a @ b`: root of the sum of their squares.
pub(super) fn product_terms(a: &ArrayView2<f64>, b: &ArrayView2<f64>) -> Array2<f64> {
    let squares = |x: &ArrayView2<f64>| x.mapv(|v| v * v);
    let (a, b) = (squares(a), squares(b));
    let (of_a, of_b): (Array1<f64>, Array1<f64>) = (a.sum_axis(Axis(0)), b.sum_axis(Axis(1)));
    outer(&a.dot(&of_b), &of_a.dot(&b))
}

/// √(rowᵢ·columnⱼ/total): both sum to the same total.
pub(super) fn outer(rows: &Array1<f64>, columns: &Array1<f64>) -> Array2<f64> {
    let total = rows.sum();
    let inverse = if total > 0.0 { 1.0 / total } else { 0.0 };
    Array2::from_shape_fn((rows.len(), columns.len()), |(i, j)| (rows[i] * inverse * columns[j]).sqrt())
}

/// Magnitude of the terms of `a @ b` with broadcast batch dimensions.
pub(super) fn batched_terms(a: &ArrayViewD<f64>, b: &ArrayViewD<f64>) -> Floats {
    let (a, b, shape) = stretched_batches(a, b);
    let [.., n, m] = shape.as_slice() else { unreachable!("matrices have two dimensions") };
    let mut terms = ArrayD::<f64>::zeros(IxDyn(&shape));
    if let Some(values) = terms.as_slice_mut().filter(|values| !values.is_empty()) {
        values.par_chunks_mut(n * m).enumerate().for_each(|(i, out)| {
            let found = product_terms(&matrix(&a, i), &matrix(&b, i));
            out.iter_mut().zip(&found).for_each(|(out, t)| *out = *t);
        });
    }
    terms.into_shared()
}

/// Magnitude after a sum back to the `shape` of an operand that was broadcast.
pub(super) fn unbroadcast_terms(terms: &Floats, shape: &[usize]) -> Floats {
    if terms.shape() == shape {
        return terms.clone();
    }
    let lead = terms.ndim() - shape.len();
    let stretched = |d: usize| d < lead || shape[d - lead] == 1 && terms.shape()[d] != 1;
    let dims: Vec<usize> = (0..terms.ndim()).filter(|d| stretched(*d)).collect();
    let squares = map(terms, |t| t * t).into_shared();
    reshaped(&sum_over(&squares, &dims).mapv_into(f64::sqrt).into_shared(), shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_columns_and_total_of_the_squares_are_exact() {
        let value = |i: usize| ((i * 7919 + 13) % 101) as f64 / 50.0 - 1.0;
        let a = Array2::from_shape_fn((4, 7), |(i, k)| value(i * 7 + k));
        let b = Array2::from_shape_fn((7, 5), |(k, j)| value(100 + k * 5 + j));
        let found = product_terms(&a.view(), &b.view()).mapv_into(|t| t * t);
        let exact = a.mapv(|v| v * v).dot(&b.mapv(|v| v * v));
        for axis in [0, 1] {
            let (found, exact) = (found.sum_axis(Axis(axis)), exact.sum_axis(Axis(axis)));
            assert!(found.iter().zip(&exact).all(|(f, e)| (f - e).abs() < 1e-12 * e), "{found} {exact}");
        }
    }

    #[test]
    fn a_product_of_zeros_has_no_terms() {
        let zero = Array2::<f64>::zeros((2, 3));
        let b = Array2::<f64>::ones((3, 2));
        assert_eq!(product_terms(&zero.view(), &b.view()), Array2::<f64>::zeros((2, 2)));
    }
}
