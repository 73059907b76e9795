//! Matrix products.

use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewD, Axis, Ix2};

use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site, Want};
use crate::engine::reference::elementwise::{map, reshaped, zip_broadcast};
use crate::engine::reference::gemm::{batched, product, transposed};
use crate::engine::reference::sum::{sum_with_terms, unbroadcast};
use crate::engine::reference::tensor::Floats;

/// `a @ b` with broadcast batch dimensions.
pub(super) fn matmul(x: Arguments<'_>) -> Result<Applied, Fault> {
    let (a, b) = (x.float(0)?.clone(), x.float(1)?.clone());
    let y = batched(&a.view(), &b.view());
    Ok(Applied::one(y, move |g, want| {
        vec![
            want.then(0, || left_gradient(g, &b, a.shape(), want)),
            want.then(1, || right_gradient(&a, g, b.shape(), want)),
        ]
    }))
}

/// `beta·bias + alpha·(a @ b)`.
pub(super) fn addmm(x: Arguments<'_>, beta: f64, alpha: f64) -> Result<Applied, Fault> {
    let (bias, a, b) = (x.float(0)?, x.float(1)?.clone(), x.float(2)?.clone());
    let product = batched(&a.view(), &b.view()).into_shared();
    let shape = product.shape().to_vec();
    // With beta = 0 the bias is not read: its NaN must not spread.
    let y = if beta == 0.0 {
        map(&product, |p| alpha * p)
    } else {
        zip_broadcast(bias, &product, &shape, |c, p| beta * c + alpha * p)
    };
    let bias_shape = bias.shape().to_vec();
    Ok(Applied::one(y, move |g, want| {
        let scaled = map(g, |g| alpha * g).into_shared();
        vec![
            want.then(0, || unbroadcast(map(g, |g| beta * g).into_shared(), &bias_shape, want.terms)),
            want.then(1, || left_gradient(&scaled, &b, a.shape(), want)),
            want.then(2, || right_gradient(&a, &scaled, b.shape(), want)),
        ]
    }))
}

/// `x @ weightᵀ (+ bias)`.
pub(super) fn linear(x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let (input, weight, bias) = (x.float(0)?, x.float(1)?.clone(), x.optional(2)?);
    let (outs, ins) = (weight.shape()[0], weight.shape()[1]);
    let shape = input.shape().to_vec();
    let rows: usize = shape.iter().rev().skip(1).product();
    let flat = reshaped(input, &[rows, ins]);
    let mut y = product(&plane(&flat.view()), &plane(&weight.view()).t());
    if let Some(bias) = bias {
        let bias = bias.view();
        y.axis_iter_mut(Axis(0)).into_par_iter().for_each(|mut row| row += &bias);
    }
    let y = reshaped(&y.into_dyn().into_shared(), site.shape());
    Ok(Applied::one(y, move |g, want| {
        let g = reshaped(g, &[rows, outs]);
        let gradient = g.view();
        let gradient = plane(&gradient);
        vec![
            want.then(0, || {
                reshaped(&product(&gradient, &plane(&weight.view())).into_dyn().into_shared(), &shape)
            }),
            want.then(1, || product(&gradient.t(), &plane(&flat.view())).into_dyn()),
            want.then(2, || sum_with_terms(&g, &[0], want.terms)),
        ]
    }))
}

/// Gradient of `a` in `a @ b`.
fn left_gradient(g: &Floats, b: &Floats, shape: &[usize], want: &Want<'_>) -> Cotangent {
    unbroadcast(batched(&g.view(), &transposed(&b.view())).into_shared(), shape, want.terms)
}

/// Gradient of `b` in `a @ b`.
fn right_gradient(a: &Floats, g: &Floats, shape: &[usize], want: &Want<'_>) -> Cotangent {
    unbroadcast(batched(&transposed(&a.view()), &g.view()).into_shared(), shape, want.terms)
}

/// A two-dimensional view.
pub(super) fn plane<'a>(x: &ArrayViewD<'a, f64>) -> ArrayView2<'a, f64> {
    x.clone().into_dimensionality::<Ix2>().unwrap_or_else(|_| unreachable!("the array has two dimensions"))
}
