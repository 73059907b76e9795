//! Scaled dot-product attention.
//!
//! `ATen`'s mathematical path: scores, mask, softmax, product. As there since 2.5, a row
//! whose scores are all −∞ (fully masked) gives zeros and no gradient, where the softmax
//! operator by itself gives NaN. With `is_causal` query i sees keys 0..=i, whatever the two
//! lengths (`ATen` aligns the triangle to the top left).

use ndarray::parallel::prelude::*;
use ndarray::{Array3, ArrayD, ArrayView2, Axis, IxDyn};

use super::softmax::softmax_row;
use crate::engine::reference::applied::{Applied, Arguments, Fault, Want};
use crate::engine::reference::elementwise::{reshaped, stretch};
use crate::engine::reference::gemm::{matrix, product_into};
use crate::engine::reference::sum::{pairwise, unbroadcast};
use crate::engine::reference::tensor::Floats;

/// softmax(q kᵀ · scale + mask) v.
pub(super) fn attention(x: Arguments<'_>, causal: bool, scale: Option<f64>) -> Result<Applied, Fault> {
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
        product_into(&weights.view(), &matrix(&value, i), 0.0, y);
    });

    let full = with(l, s);
    let shape = with(l, width);
    let y = reshaped(&y.into_dyn().into_shared(), &shape);
    let weights = weights.into_dyn().into_shared();
    Ok(Applied::one(y, move |g, want| {
        let scores = score_gradient(&weights, g, &v);
        let scaled = |want: &Want<'_>, index: usize, other: &Floats, flip: bool| {
            want.then(index, || {
                let other = other.view();
                per_batch(&batch_shape, if flip { s } else { l }, e, |i, mut out| {
                    let scores = scores.index_axis(Axis(0), i);
                    let scores = if flip { scores.reversed_axes() } else { scores };
                    product_into(&scores, &matrix(&other, i), 0.0, out.view_mut());
                    out.mapv_inplace(|v| v * scale);
                })
            })
        };
        vec![
            scaled(want, 0, &k, false),
            scaled(want, 1, &q, true),
            want.then(2, || {
                let g = g.view();
                per_batch(&batch_shape, s, width, |i, out| {
                    let weights = weights.index_axis(Axis(0), i);
                    let weights: ArrayView2<f64> = weights
                        .into_dimensionality()
                        .unwrap_or_else(|_| unreachable!("made as [batch, l, s]"));
                    product_into(&weights.reversed_axes(), &matrix(&g, i), 0.0, out);
                })
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

/// Gradient of the scores (after scaling): p∘(dp − Σ dp∘p).
fn score_gradient(weights: &Floats, g: &Floats, v: &Floats) -> Array3<f64> {
    let shape = weights.shape();
    let mut scores = Array3::<f64>::zeros((shape[0], shape[1], shape[2]));
    let (g, v) = (g.view(), v.view());
    scores.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(i, mut scores)| {
        product_into(&matrix(&g, i), &matrix(&v, i).t(), 0.0, scores.view_mut());
        let weights = weights.index_axis(Axis(0), i);
        let mut terms = vec![0.0; weights.shape()[1]];
        for (mut scores, weights) in scores.axis_iter_mut(Axis(0)).zip(weights.axis_iter(Axis(0))) {
            for ((term, dp), p) in terms.iter_mut().zip(&scores).zip(weights.iter()) {
                *term = dp * p;
            }
            let sum = pairwise(&terms);
            for (dp, p) in scores.iter_mut().zip(weights.iter()) {
                *dp = p * (*dp - sum);
            }
        }
    });
    scores
}

/// An array `[batch.., rows, columns]` filled matrix by matrix.
fn per_batch(
    batch: &[usize],
    rows: usize,
    columns: usize,
    fill: impl Fn(usize, ndarray::ArrayViewMut2<f64>) + Sync + Send,
) -> ArrayD<f64> {
    let mut out = Array3::<f64>::zeros((batch.iter().product(), rows, columns));
    out.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(i, out)| fill(i, out));
    let shape: Vec<usize> = batch.iter().copied().chain([rows, columns]).collect();
    out.into_shape_with_order(IxDyn(&shape)).unwrap_or_else(|_| unreachable!("a new array is row-major"))
}
