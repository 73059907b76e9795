//! Matrix products: `matrixmultiply` through ndarray, split over blocks of rows (or
//! columns) and over the batch. Blocks depend on the shape alone.

use ndarray::linalg::general_mat_mul;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayD, ArrayView2, ArrayViewD, ArrayViewMut2, Axis, Ix2, IxDyn};

/// Multiplications from which on a product is worth several threads.
const PARALLEL: usize = 1 << 18;

/// Rows (or columns) that are multiplied together.
const BLOCK: usize = 256;

/// `c = a @ b + beta·c`, any strides.
pub(super) fn product_into(a: &ArrayView2<f64>, b: &ArrayView2<f64>, beta: f64, mut c: ArrayViewMut2<f64>) {
    let (m, n) = c.dim();
    if m * n * a.ncols() < PARALLEL {
        general_mat_mul(1.0, a, b, beta, &mut c);
        return;
    }
    // Each block packs the whole other operand again: large enough that this is a few percent.
    if m >= n {
        c.axis_chunks_iter_mut(Axis(0), BLOCK)
            .into_par_iter()
            .zip(a.axis_chunks_iter(Axis(0), BLOCK).into_par_iter())
            .for_each(|(mut c, a)| general_mat_mul(1.0, &a, b, beta, &mut c));
    } else {
        c.axis_chunks_iter_mut(Axis(1), BLOCK)
            .into_par_iter()
            .zip(b.axis_chunks_iter(Axis(1), BLOCK).into_par_iter())
            .for_each(|(mut c, b)| general_mat_mul(1.0, a, &b, beta, &mut c));
    }
}

/// `a @ b`.
pub(super) fn product(a: &ArrayView2<f64>, b: &ArrayView2<f64>) -> Array2<f64> {
    let mut c = Array2::zeros((a.nrows(), b.ncols()));
    product_into(a, b, 0.0, c.view_mut());
    c
}

/// Matrix at one position of the (row-major counted) batch dimensions.
pub(super) fn matrix<'a>(x: &ArrayViewD<'a, f64>, mut position: usize) -> ArrayView2<'a, f64> {
    let mut view = x.clone();
    let mut after: usize = x.shape().iter().rev().skip(2).product();
    while view.ndim() > 2 {
        after /= view.len_of(Axis(0)).max(1);
        let index = position / after.max(1);
        position -= index * after;
        view = view.index_axis_move(Axis(0), index);
    }
    view.into_dimensionality::<Ix2>().unwrap_or_else(|_| unreachable!("two dimensions are left"))
}

/// Both operands over their common batch dimensions, and the shape of their product.
pub(super) fn stretched_batches<'a>(
    a: &'a ArrayViewD<f64>,
    b: &'a ArrayViewD<f64>,
) -> (ArrayViewD<'a, f64>, ArrayViewD<'a, f64>, Vec<usize>) {
    let (n, m) = (a.shape()[a.ndim() - 2], b.shape()[b.ndim() - 1]);
    let mut shape = crate::program::broadcast(&a.shape()[..a.ndim() - 2], &b.shape()[..b.ndim() - 2])
        .unwrap_or_else(|_| unreachable!("inference checked the batch dimensions"));
    let stretch = |x: &ArrayViewD<f64>| {
        let full: Vec<usize> = shape.iter().chain(&x.shape()[x.ndim() - 2..]).copied().collect();
        IxDyn(&full)
    };
    let both = a.broadcast(stretch(a)).zip(b.broadcast(stretch(b)));
    let Some((a, b)) = both else { unreachable!("inference checked the batch dimensions") };
    shape.extend([n, m]);
    (a, b, shape)
}

/// `a @ b` over broadcast batch dimensions; both operands at least 2-d.
pub(super) fn batched(a: &ArrayViewD<f64>, b: &ArrayViewD<f64>) -> ArrayD<f64> {
    let (a, b, shape) = stretched_batches(a, b);
    let [.., n, m] = shape.as_slice() else { unreachable!("matrices have two dimensions") };
    let mut c = ArrayD::<f64>::zeros(IxDyn(&shape));
    if !c.is_empty() {
        let batch = c.len() / (n * m);
        let mut stack = c
            .view_mut()
            .into_shape_with_order((batch, *n, *m))
            .unwrap_or_else(|_| unreachable!("a new array is row-major"));
        stack.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(i, c)| {
            product_into(&matrix(&a, i), &matrix(&b, i), 0.0, c);
        });
    }
    c
}

/// A view with its last two dimensions exchanged.
pub(super) fn transposed<'a>(x: &ArrayViewD<'a, f64>) -> ArrayViewD<'a, f64> {
    let mut view = x.clone();
    let rank = view.ndim();
    view.swap_axes(rank - 2, rank - 1);
    view
}
