//! Layer, RMS and group normalisation: two passes, so that a mean much larger than the
//! deviation does not cancel.

use ndarray::Zip;
use rayon::prelude::*;

use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site, Want};
use crate::engine::reference::elementwise::{
    PARALLEL, contiguous, from_vec, reshaped, slice, stretch, zip, zip_broadcast,
};
use crate::engine::reference::sum::{pairwise, pairwise_product, sum_row_products, unbroadcast};
use crate::engine::reference::tensor::Floats;

/// Layer normalisation over the trailing `normalized` dimensions.
pub(super) fn layer_norm(
    x: Arguments<'_>,
    normalized: &[usize],
    eps: f64,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    let n = normalized.iter().product();
    Ok(affine(x.float(0)?, n, eps, true, x.optional(1)?.cloned(), x.optional(2)?.cloned(), site))
}

/// RMS normalisation over the trailing `normalized` dimensions.
pub(super) fn rms_norm(
    x: Arguments<'_>,
    normalized: &[usize],
    eps: f64,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    let n = normalized.iter().product();
    Ok(affine(x.float(0)?, n, eps, false, x.optional(1)?.cloned(), None, site))
}

/// Group normalisation; weight and bias belong to channels (dimension 1).
pub(super) fn group_norm(
    x: Arguments<'_>,
    groups: usize,
    eps: f64,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let per_sample: usize = input.shape().iter().skip(1).product();
    let n = per_sample / groups.max(1);
    let channel = |v: Option<&Floats>| v.map(|v| per_channel(v, input.ndim()));
    let (weight, bias) = (channel(x.optional(1)?), channel(x.optional(2)?));
    let applied = affine(input, n, eps, true, weight, bias, site);
    let channels = input.shape()[1];
    // The cotangents come back in the shape that broadcasts: [channels, 1, ..].
    let inner = applied.vjp;
    let vjp = inner.map(|inner| -> crate::engine::reference::applied::Vjp {
        Box::new(move |cotangents, results, want| {
            let mut found = inner(cotangents, results, want);
            for cotangent in found.iter_mut().skip(1).flatten() {
                *cotangent = cotangent.reshaped(&[channels]);
            }
            found
        })
    });
    Ok(Applied { vjp, ..applied })
}

/// A vector of channels under a shape that broadcasts over `[n, channels, ..]`.
pub(super) fn per_channel(v: &Floats, rank: usize) -> Floats {
    let mut shape = vec![1; rank - 1];
    shape[0] = v.len();
    reshaped(v, &shape)
}

/// Rows of `n` elements brought to variance 1 (and mean 0), then weighted.
fn affine(
    x: &Floats,
    n: usize,
    eps: f64,
    centred: bool,
    weight: Option<Floats>,
    bias: Option<Floats>,
    site: &Site<'_>,
) -> Applied {
    let normal = Rows::standardised(x, n, eps, centred);
    let y = weigh(&normal.values, weight.as_ref(), bias.as_ref());
    let terms = site.terms.then(|| weigh_terms(&normal.terms(), weight.as_ref(), bias.as_ref()));
    Applied::one(Cotangent::of(y, terms), move |g, want| {
        let mut found = weight_gradients(g, &normal.values, weight.as_ref(), bias.as_ref(), want);
        found.insert(
            0,
            want.then(0, || {
                // A group's rows are shorter than its sample: its weight may look like a row's
                // where channels have one element.
                let by_row = weight.as_ref().filter(|w| w.len() == n && is_row(w, g.shape()));
                let g = if by_row.is_some() { g.clone() } else { weighted(g, weight.as_ref()) };
                normal.gradient(&g, by_row, centred, want.terms)
            }),
        );
        found
    })
}

/// `values · weight + bias`, both optional and broadcast.
pub(super) fn weigh(values: &Floats, weight: Option<&Floats>, bias: Option<&Floats>) -> Floats {
    let shape = values.shape();
    match (weight, bias) {
        (Some(w), Some(b)) if values.is_standard_layout() && is_row(w, shape) && is_row(b, shape) => {
            let (w, b) = (contiguous(w), contiguous(b));
            let (w, b, n) = (slice(&w), slice(&b), w.len().max(1));
            let mut y = vec![0.0; values.len()];
            let row = |(y, v): (&mut [f64], &[f64])| {
                let weights = w.iter().zip(b);
                y.iter_mut().zip(v).zip(weights).for_each(|((y, v), (w, b))| *y = v * w + b);
            };
            let values = slice(values);
            if values.len() < PARALLEL {
                y.chunks_mut(n).zip(values.chunks(n)).for_each(row);
            } else {
                y.par_chunks_mut(n).zip(values.par_chunks(n)).for_each(row);
            }
            from_vec(shape, y).into_shared()
        }
        (Some(w), Some(b)) => {
            let zip = Zip::from(values).and(stretch(w, shape)).and(stretch(b, shape));
            let y = if values.len() < PARALLEL {
                zip.map_collect(|v, w, b| v * w + b)
            } else {
                zip.par_map_collect(|v, w, b| v * w + b)
            };
            y.into_shared()
        }
        (w, _) => weighted(values, w),
    }
}

/// Whether a weight of layer or RMS normalisation: one for each element of a row.
fn is_row(weight: &Floats, shape: &[usize]) -> bool {
    shape.ends_with(weight.shape())
}

/// Magnitude of the terms of [`weigh`], given that of the terms of the values.
pub(super) fn weigh_terms(terms: &Floats, weight: Option<&Floats>, bias: Option<&Floats>) -> Floats {
    let product = weighted(terms, weight);
    bias.map_or_else(
        || product.clone(),
        |b| zip_broadcast(&product, b, product.shape(), |p, b| p.hypot(*b)).into_shared(),
    )
}

/// `values · weight`, where there is one.
pub(super) fn weighted(values: &Floats, weight: Option<&Floats>) -> Floats {
    weight.map_or_else(
        || values.clone(),
        |w| zip_broadcast(values, w, values.shape(), |v, w| v * w).into_shared(),
    )
}

/// Cotangents of weight (input 1) and bias (input 2), in their own shapes.
pub(super) fn weight_gradients(
    g: &Floats,
    normal: &Floats,
    weight: Option<&Floats>,
    bias: Option<&Floats>,
    want: &Want<'_>,
) -> Vec<Option<Cotangent>> {
    vec![
        weight.and_then(|w| {
            let rows = !want.terms && is_row(w, g.shape()) && normal.is_standard_layout();
            if rows && g.is_standard_layout() {
                return want
                    .then(1, || from_vec(w.shape(), sum_row_products(slice(g), slice(normal), w.len())));
            }
            want.then(1, || unbroadcast(zip(g, normal, |g, v| g * v).into_shared(), w.shape(), want.terms))
        }),
        bias.and_then(|b| want.then(2, || unbroadcast(g.clone(), b.shape(), want.terms))),
    ]
}

/// Standardised rows and what their gradient needs.
pub(super) struct Rows {
    /// `(x − mean) / sqrt(var + eps)` in the shape of x.
    pub(super) values: Floats,
    /// Of each row: mean, variance, 1/sqrt(var + eps).
    pub(super) statistics: Vec<(f64, f64, f64)>,
    n: usize,
}

impl Rows {
    /// Standardises rows of `n` elements of the row-major `x`.
    pub(super) fn standardised(x: &Floats, n: usize, eps: f64, centred: bool) -> Self {
        let shape = x.shape().to_vec();
        let mut values = contiguous(x).into_owned().into_raw_vec_and_offset().0;
        let row = |row: &mut [f64]| {
            let count = row.len() as f64;
            let mean = if centred { pairwise(row) / count } else { 0.0 };
            for v in row.iter_mut() {
                *v -= mean;
            }
            let var = pairwise_product(row, row) / count;
            let scale = 1.0 / (var + eps).sqrt();
            for v in row {
                *v *= scale;
            }
            (mean, var, scale)
        };
        let n = n.max(1);
        let statistics = if values.len() < PARALLEL {
            values.chunks_exact_mut(n).map(row).collect()
        } else {
            values.par_chunks_exact_mut(n).map(row).collect()
        };
        Self { values: from_vec(&shape, values).into_shared(), statistics, n }
    }

    /// Magnitude of the terms of each value: of `x − mean`, in units of the deviation.
    pub(super) fn terms(&self) -> Floats {
        let mut terms = slice(&contiguous(&self.values)).to_vec();
        for (row, (mean, _, scale)) in terms.chunks_mut(self.n).zip(&self.statistics) {
            for v in row {
                *v = v.hypot(mean * scale);
            }
        }
        from_vec(self.values.shape(), terms).into_shared()
    }

    /// Cotangent of x, given that of the values (or of their product with a row of weights).
    pub(super) fn gradient(
        &self,
        g: &Floats,
        weight: Option<&Floats>,
        centred: bool,
        terms: bool,
    ) -> Cotangent {
        let weight = weight.map(contiguous);
        let weight = weight.as_ref().map_or(&[][..], slice);
        let shape = g.shape().to_vec();
        let shaped = |values: Vec<f64>| from_vec(&shape, values).into_shared();
        let mut values = contiguous(g).into_owned().into_raw_vec_and_offset().0;
        let mut magnitude = if terms { vec![0.0; values.len()] } else { Vec::new() };
        let normal = slice(&self.values);
        let row = |g: &mut [f64], magnitude: &mut [f64], v: &[f64], (_, _, scale): &(f64, f64, f64)| {
            let count = g.len() as f64;
            g.iter_mut().zip(weight).for_each(|(g, w)| *g *= w);
            let slope = pairwise_product(g, v) / count;
            let mean = if centred { pairwise(g) / count } else { 0.0 };
            for ((terms, g), v) in magnitude.iter_mut().zip(g.iter()).zip(v) {
                *terms = g.hypot(mean).hypot(v * slope) * scale;
            }
            g.iter_mut().zip(v).for_each(|(g, v)| *g = (*g - mean - v * slope) * scale);
        };
        let n = self.n;
        if terms {
            let rows = values.par_chunks_exact_mut(n).zip(magnitude.par_chunks_exact_mut(n));
            let rows = rows.zip(normal.par_chunks_exact(n)).zip(&self.statistics);
            rows.for_each(|(((g, terms), v), s)| row(g, terms, v, s));
        } else if values.len() < PARALLEL {
            let rows = values.chunks_exact_mut(n).zip(normal.chunks_exact(n));
            rows.zip(&self.statistics).for_each(|((g, v), s)| row(g, &mut [], v, s));
        } else {
            let rows = values.par_chunks_exact_mut(n).zip(normal.par_chunks_exact(n));
            rows.zip(&self.statistics).for_each(|((g, v), s)| row(g, &mut [], v, s));
        }
        Cotangent::of(shaped(values), terms.then(|| shaped(magnitude)))
    }
}
