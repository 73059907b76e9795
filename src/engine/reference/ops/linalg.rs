//! Matrix products.

use ndarray::parallel::prelude::*;
use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut1, Axis, Ix2};

use super::products::{batched_terms, product_terms, unbroadcast_terms};
use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site, Want};
use crate::engine::reference::elementwise::{map, reshaped, zip_broadcast};
use crate::engine::reference::gemm::{batched, product, transposed};
use crate::engine::reference::sum::{sum_with_terms, unbroadcast};
use crate::engine::reference::tensor::Floats;

/// `a @ b` with broadcast batch dimensions.
pub(super) fn matmul(x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let (a, b) = (x.float(0)?.clone(), x.float(1)?.clone());
    let y = batched(&a.view(), &b.view());
    let terms = site.terms.then(|| batched_terms(&a.view(), &b.view()));
    Ok(Applied::one(Cotangent::of(y, terms), move |g, want| {
        vec![
            want.then(0, || left_gradient(g, &b, a.shape(), want)),
            want.then(1, || right_gradient(&a, g, b.shape(), want)),
        ]
    }))
}

/// `beta·bias + alpha·(a @ b)`.
pub(super) fn addmm(x: Arguments<'_>, beta: f64, alpha: f64, site: &Site<'_>) -> Result<Applied, Fault> {
    let (bias, a, b) = (x.float(0)?, x.float(1)?.clone(), x.float(2)?.clone());
    let product = batched(&a.view(), &b.view()).into_shared();
    let shape = product.shape().to_vec();
    // With beta = 0 the bias is not read: its NaN must not spread.
    let y = if beta == 0.0 {
        map(&product, |p| alpha * p)
    } else {
        zip_broadcast(bias, &product, &shape, |c, p| beta * c + alpha * p)
    };
    let terms = site.terms.then(|| {
        let terms = batched_terms(&a.view(), &b.view());
        zip_broadcast(bias, &terms, &shape, |c, t| (beta * c).hypot(alpha * t)).into_shared()
    });
    let bias_shape = bias.shape().to_vec();
    Ok(Applied::one(Cotangent::of(y, terms), move |g, want| {
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
    let y = Cotangent::of(
        y.into_dyn(),
        site.terms.then(|| {
            let mut terms = product_terms(&plane(&flat.view()), &plane(&weight.view()).t());
            if let Some(bias) = bias {
                let row =
                    |mut row: ArrayViewMut1<f64>| row.zip_mut_with(&row_of(bias), |t, b| *t = t.hypot(*b));
                terms.axis_iter_mut(Axis(0)).into_par_iter().for_each(row);
            }
            terms.into_dyn().into_shared()
        }),
    );
    Ok(Applied::one(y.reshaped(site.shape()), move |g, want| {
        let g = reshaped(g, &[rows, outs]);
        let gradient = g.view();
        let gradient = plane(&gradient);
        let with_terms = |a: &ArrayView2<f64>, b: &ArrayView2<f64>| {
            let terms = want.terms.then(|| product_terms(a, b).into_dyn().into_shared());
            Cotangent::of(product(a, b).into_dyn(), terms)
        };
        vec![
            want.then(0, || with_terms(&gradient, &plane(&weight.view())).reshaped(&shape)),
            want.then(1, || with_terms(&gradient.t(), &plane(&flat.view()))),
            want.then(2, || sum_with_terms(&g, &[0], want.terms)),
        ]
    }))
}

/// Gradient of `a` in `a @ b`.
fn left_gradient(g: &Floats, b: &Floats, shape: &[usize], want: &Want<'_>) -> Cotangent {
    batched_back(&g.view(), &transposed(&b.view()), shape, want)
}

/// Gradient of `b` in `a @ b`.
fn right_gradient(a: &Floats, g: &Floats, shape: &[usize], want: &Want<'_>) -> Cotangent {
    batched_back(&transposed(&a.view()), &g.view(), shape, want)
}

/// `a @ b`, summed back to the `shape` of an operand whose batch was broadcast.
fn batched_back(a: &ArrayViewD<f64>, b: &ArrayViewD<f64>, shape: &[usize], want: &Want<'_>) -> Cotangent {
    let value = unbroadcast(batched(a, b).into_shared(), shape, false);
    Cotangent::of(value, want.terms.then(|| unbroadcast_terms(&batched_terms(a, b), shape)))
}

fn row_of(x: &Floats) -> ArrayView1<'_, f64> {
    x.view().into_dimensionality().unwrap_or_else(|_| unreachable!("inference checked that this is a vector"))
}

/// A two-dimensional view.
pub(super) fn plane<'a>(x: &ArrayViewD<'a, f64>) -> ArrayView2<'a, f64> {
    x.clone().into_dimensionality::<Ix2>().unwrap_or_else(|_| unreachable!("the array has two dimensions"))
}
