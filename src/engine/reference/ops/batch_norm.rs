//! Batch normalisation, in training and evaluation.

use ndarray::IxDyn;

use super::norm::{Rows, per_channel, weigh, weigh_terms, weight_gradients, weighted};
use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site, Vjp};
use crate::engine::reference::elementwise::{contiguous, slice, zip, zip_broadcast};
use crate::engine::reference::tensor::{Data, Floats};

/// Over all dimensions but 1. Training also gives both updated running statistics; those,
/// and the running statistics that evaluation reads, have no gradient, as in `ATen`.
pub(super) fn batch_norm(
    x: Arguments<'_>,
    training: bool,
    momentum: f64,
    eps: f64,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let rank = input.ndim();
    let channels = input.shape()[1];
    let weight = per_channel(x.float(1)?, rank);
    let bias = per_channel(x.float(2)?, rank);
    let (running_mean, running_var) = (x.float(3)?, x.float(4)?);
    let normal = if training {
        Normal::of_batch(input, channels, eps)
    } else {
        Normal::of_running(input, running_mean, running_var, eps)
    };
    let y = weigh(&normal.values(), Some(&weight), Some(&bias));
    let terms = site.terms.then(|| weigh_terms(&normal.terms(running_mean), Some(&weight), Some(&bias)));
    let mut outputs = vec![Data::Float(y)];
    if let Normal::Batch(rows) = &normal {
        let n = input.len() as f64 / channels.max(1) as f64;
        let mean = rows.statistics.iter().map(|s| s.0).collect();
        let var = rows.statistics.iter().map(|s| s.1 * (n / (n - 1.0))).collect();
        for (old, new) in [(running_mean, mean), (running_var, var)] {
            let new = Floats::from_shape_vec(IxDyn(&[channels]), new).map_err(|e| e.to_string())?;
            let updated = zip(old, &new, |old, new| (1.0 - momentum) * old + momentum * new);
            outputs.push(Data::Float(updated.into_shared()));
        }
    }
    let vjp: Vjp = Box::new(move |cotangents, _, want| {
        let Some(Some(g)) = cotangents.first() else { return Vec::new() };
        let values = normal.values();
        let mut found = weight_gradients(g, &values, Some(&weight), Some(&bias), want);
        for cotangent in found.iter_mut().flatten() {
            *cotangent = cotangent.reshaped(&[channels]);
        }
        found.insert(0, want.then(0, || normal.gradient(&weighted(g, Some(&weight)), want.terms)));
        found
    });
    let mut applied = Applied::many(outputs, Some(vjp));
    if let Some(output) = applied.outputs.first_mut() {
        output.terms = terms.map(Into::into);
    }
    Ok(applied)
}

/// The standardised input and how it depends on the input.
enum Normal {
    /// By the batch's own statistics; rows are channels.
    Batch(Rows),
    /// By constants: values and 1/sqrt(var + eps) by channel.
    Running(Floats, Floats),
}

impl Normal {
    fn of_batch(x: &Floats, channels: usize, eps: f64) -> Self {
        Self::Batch(Rows::standardised(&channels_first(x), x.len() / channels.max(1), eps, true))
    }

    fn of_running(x: &Floats, mean: &Floats, var: &Floats, eps: f64) -> Self {
        let scale = per_channel(&var.mapv(|v| 1.0 / (v + eps).sqrt()).into_shared(), x.ndim());
        let mean = per_channel(mean, x.ndim());
        let centred = zip_broadcast(x, &mean, x.shape(), |x, m| x - m).into_shared();
        let values = zip_broadcast(&centred, &scale, x.shape(), |v, s| v * s);
        Self::Running(values.into_shared(), scale)
    }

    /// In the layout of the input.
    fn values(&self) -> Floats {
        match self {
            Self::Batch(rows) => swapped(rows.values.clone()),
            Self::Running(values, _) => values.clone(),
        }
    }

    /// Root of the sum of the squares of the terms of each value: the input and its mean.
    fn terms(&self, mean: &Floats) -> Floats {
        match self {
            Self::Batch(rows) => swapped(rows.terms()),
            Self::Running(values, scale) => {
                let shift = zip(&per_channel(mean, values.ndim()), scale, |m, s| m * s).into_shared();
                zip_broadcast(values, &shift, values.shape(), |v, m| v.hypot(*m)).into_shared()
            }
        }
    }

    fn gradient(&self, g: &Floats, terms: bool) -> Cotangent {
        match self {
            Self::Batch(rows) => {
                let found = rows.gradient(&channels_first(g), None, true, terms);
                Cotangent::of(swapped(found.value), found.terms.map(|t| swapped(t.magnitude)))
            }
            Self::Running(_, scale) => weighted(g, Some(scale)).into(),
        }
    }
}

/// Dimensions 0 and 1 exchanged.
fn swapped(mut x: Floats) -> Floats {
    x.swap_axes(0, 1);
    x
}

/// Row-major `[channels, n, ..]`.
fn channels_first(x: &Floats) -> Floats {
    let x = contiguous(&swapped(x.clone()));
    debug_assert_eq!(slice(&x).len(), x.len());
    x
}
