//! Scaled dot-product attention.
//!
//! `ATen`'s mathematical path: scores, mask, softmax, product. As there since 2.5, a row
//! whose scores are all −∞ (fully masked) gives zeros and no gradient, where the softmax
//! operator by itself gives NaN. With `is_causal` query i sees keys 0..=i, whatever the two
//! lengths (`ATen` aligns the triangle to the top left).

use ndarray::parallel::prelude::*;
use ndarray::{Array3, ArrayD, ArrayView2, ArrayViewMut2, Axis, IxDyn};

use super::products::product_terms;
use super::softmax::softmax_row;
use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site, Want};
use crate::engine::reference::elementwise::{reshaped, stretch};
use crate::engine::reference::gemm::{matrix, product_into};
use crate::engine::reference::sum::{pairwise, unbroadcast};
use crate::engine::reference::tensor::Floats;

/// Fills a matrix from two others.
type Product = dyn Fn(&ArrayView2<f64>, &ArrayView2<f64>, ArrayViewMut2<f64>) + Sync;

/// What is stored between the two products, by number: probabilities in the forward pass,
/// gradients of the scores in the backward one. Both are operands of a product, so that
/// every kernel, fused or not, holds them in the dtype of the operator; in f16 the second
/// are small enough to be subnormal.
const PROBABILITIES: u64 = 1;
/// See [`PROBABILITIES`].
const SCORE_GRADIENTS: u64 = 2;

/// softmax(q kᵀ · scale + mask) v.
pub(super) fn attention(
    x: Arguments<'_>,
    causal: bool,
    scale: Option<f64>,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    let (q, k, v) = (x.float(0)?.clone(), x.float(1)?.clone(), x.float(2)?.clone());
    let mask = x.optional(3)?;
    let rank = q.ndim();
    let (l, e, s) = (q.shape()[rank - 2], q.shape()[rank - 1], k.shape()[rank - 2]);
    let width = v.shape()[rank - 1];
    let scale = scale.unwrap_or_else(|| 1.0 / (e as f64).sqrt());
    let batch_shape = q.shape()[..rank - 2].to_vec();
    let batch: usize = batch_shape.iter().product();
    let with = |a: usize, b: usize| batch_shape.iter().copied().chain([a, b]).collect::<Vec<_>>();
    let mask_view = mask.map(|mask| stretch(mask, &with(l, s)));
    let mask_shape = mask.map(|mask| mask.shape().to_vec());

    let mut weights = Array3::<f64>::zeros((batch, l, s));
    let mut y = Array3::<f64>::zeros((batch, l, width));
    let (query, key, value) = (q.view(), k.view(), v.view());
    let slices = weights.axis_iter_mut(Axis(0)).into_par_iter().zip(y.axis_iter_mut(Axis(0)).into_par_iter());
    slices.enumerate().for_each(|(i, (mut weights, y))| {
        product_into(&matrix(&query, i), &matrix(&key, i).t(), 0.0, weights.view_mut());
        weights.mapv_inplace(|score| score * scale);
        if let Some(mask) = &mask_view {
            weights += &matrix(mask, i);
        }
        for (row, mut weights) in weights.axis_iter_mut(Axis(0)).enumerate() {
            if let Some(scores) = weights.as_slice_mut() {
                let seen = if causal { (row + 1).min(scores.len()) } else { scores.len() };
                scores[seen..].fill(f64::NEG_INFINITY);
                if scores.iter().all(|score| *score == f64::NEG_INFINITY) {
                    scores.fill(0.0);
                } else {
                    softmax_row(scores);
                }
            }
        }
        if let (Some(inner), Some(weights)) = (&site.inner, weights.as_slice_mut()) {
            inner.round(PROBABILITIES, weights);
        }
        product_into(&weights.view(), &matrix(&value, i), 0.0, y);
    });

    let full = with(l, s);
    let shape = with(l, width);
    let y = reshaped(&y.into_dyn().into_shared(), &shape);
    let weights = weights.into_dyn().into_shared();
    let terms = site.terms.then(|| {
        let value = v.view();
        let found = per_batch(&batch_shape, l, width, |i, mut out| {
            out.assign(&product_terms(&plane_of(&weights, i), &matrix(&value, i)));
        });
        found.into_shared()
    });
    let inner = site.inner;
    Ok(Applied::by_result(Cotangent::of(y, terms), move |g, y, want| {
        let stored = inner.map(|_| y);
        let (mut scores, sizes) = score_gradient(&weights, g, &v, stored, want.terms);
        if let (Some(inner), Some(scores)) = (&inner, scores.as_slice_mut()) {
            inner.round(SCORE_GRADIENTS, scores);
        }
        let scaled = |want: &Want<'_>, index: usize, other: &Floats, flip: bool| {
            want.then(index, || {
                let other = other.view();
                let rows = if flip { s } else { l };
                let of = |x: &Array3<f64>, product: &Product| {
                    per_batch(&batch_shape, rows, e, |i, mut out| {
                        let x = x.index_axis(Axis(0), i);
                        let x = if flip { x.reversed_axes() } else { x };
                        product(&x, &matrix(&other, i), out.view_mut());
                        out.mapv_inplace(|v| v * scale);
                    })
                };
                let value = of(&scores, &|a, b, c| product_into(a, b, 0.0, c));
                let terms =
                    sizes.as_ref().map(|sizes| of(sizes, &|a, b, mut c| c.assign(&product_terms(a, b))));
                Cotangent::of(value, terms.map(ArrayD::into_shared))
            })
        };
        vec![
            scaled(want, 0, &k, false),
            scaled(want, 1, &q, true),
            want.then(2, || {
                let g = g.view();
                let value = per_batch(&batch_shape, s, width, |i, out| {
                    product_into(&plane_of(&weights, i).reversed_axes(), &matrix(&g, i), 0.0, out);
                });
                let terms = want.terms.then(|| {
                    let found = per_batch(&batch_shape, s, width, |i, mut out| {
                        out.assign(&product_terms(&plane_of(&weights, i).reversed_axes(), &matrix(&g, i)));
                    });
                    found.into_shared()
                });
                Cotangent::of(value, terms)
            }),
            mask_shape.as_ref().and_then(|shape| {
                want.then(3, || {
                    let scores = reshaped(&scores.clone().into_dyn().into_shared(), &full);
                    unbroadcast(scores, shape, want.terms)
                })
            }),
        ]
    }))
}

/// Weights of one position of the batch.
fn plane_of(weights: &Floats, position: usize) -> ArrayView2<'_, f64> {
    let plane = weights.index_axis(Axis(0), position);
    plane.into_dimensionality().unwrap_or_else(|_| unreachable!("made as [batch, l, s]"))
}

/// Gradient of the scores (after scaling), p∘(dp − Σ dp∘p), and the magnitude of its two terms.
///
/// Fused kernels take the sum from the result as it was `stored`, Σ dp∘p = Σ g∘y (Dao et al.,
/// FlashAttention, arXiv 2205.14135, appendix B.4), so that the rounding of the result moves a
/// whole row of gradients together, and with it the row's sum away from zero. The noise does
/// as they do: it is the larger of the two errors.
fn score_gradient(
    weights: &Floats,
    g: &Floats,
    v: &Floats,
    stored: Option<&Floats>,
    terms: bool,
) -> (Array3<f64>, Option<Array3<f64>>) {
    let shape = weights.shape();
    let mut scores = Array3::<f64>::zeros((shape[0], shape[1], shape[2]));
    let mut sizes =
        Array3::<f64>::zeros(if terms { (shape[0], shape[1], shape[2]) } else { (shape[0], 0, 0) });
    let (g, v) = (g.view(), v.view());
    let stored = stored.map(|y| y.view());
    let each =
        scores.axis_iter_mut(Axis(0)).into_par_iter().zip(sizes.axis_iter_mut(Axis(0)).into_par_iter());
    each.enumerate().for_each(|(i, (mut scores, mut sizes))| {
        product_into(&matrix(&g, i), &matrix(&v, i).t(), 0.0, scores.view_mut());
        let weights = plane_of(weights, i);
        let mut products = vec![0.0; weights.ncols()];
        for (row, (mut scores, weights)) in
            scores.axis_iter_mut(Axis(0)).zip(weights.axis_iter(Axis(0))).enumerate()
        {
            for ((product, dp), p) in products.iter_mut().zip(&scores).zip(weights.iter()) {
                *product = dp * p;
            }
            let sum = match &stored {
                None => pairwise(&products),
                Some(y) => matrix(&g, i).row(row).dot(&matrix(y, i).row(row)),
            };
            if terms {
                let sizes = sizes.index_axis_mut(Axis(0), row);
                for ((size, dp), p) in sizes.into_iter().zip(&scores).zip(weights.iter()) {
                    *size = p * dp.hypot(sum);
                }
            }
            for (dp, p) in scores.iter_mut().zip(weights.iter()) {
                *dp = p * (*dp - sum);
            }
        }
    });
    (scores, terms.then_some(sizes))
}

/// An array `[batch.., rows, columns]` filled matrix by matrix.
fn per_batch(
    batch: &[usize],
    rows: usize,
    columns: usize,
    fill: impl Fn(usize, ArrayViewMut2<f64>) + Sync + Send,
) -> ArrayD<f64> {
    let mut out = Array3::<f64>::zeros((batch.iter().product(), rows, columns));
    out.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(i, out)| fill(i, out));
    let shape: Vec<usize> = batch.iter().copied().chain([rows, columns]).collect();
    out.into_shape_with_order(IxDyn(&shape)).unwrap_or_else(|_| unreachable!("a new array is row-major"))
}
