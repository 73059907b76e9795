//! Losses.

use ndarray::ArrayD;

use super::index::classes;
use super::pointwise::sign;
use super::softmax::{log_softmax_row, shift_and_log};
use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site, Terms};
use crate::engine::reference::elementwise::{contiguous, from_vec, slice, zip, zip3};
use crate::engine::reference::sum::pairwise;
use crate::engine::reference::tensor::Floats;
use crate::numerics::max_nan;
use crate::program::{LossReduction, Op};

fn scalar(value: f64) -> ArrayD<f64> {
    from_vec(&[], vec![value])
}

/// The cotangent of a scalar.
fn seed(g: &Floats) -> f64 {
    g.first().copied().unwrap_or(0.0)
}

/// `cross_entropy_loss` and `nll_loss`: a weighted mean over the samples that are not
/// ignored, NaN if there is none; ignored samples have gradient 0 even then. Class weights
/// have no gradient, as in `ATen`.
pub(super) fn classification(op: &Op, x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let (ignore, smoothing, reduction, of_logits) = match op {
        Op::CrossEntropy { ignore_index, label_smoothing, reduction } => {
            (*ignore_index, *label_smoothing, *reduction, true)
        }
        Op::NllLoss { ignore_index, reduction } => (*ignore_index, 0.0, *reduction, false),
        _ => return Err("is not a classification loss".to_owned()),
    };
    let scores = contiguous(x.float(0)?);
    let shape = scores.shape().to_vec();
    let c = shape[1];
    let targets = classes(x.integer(1)?, ignore, c)?;
    let weighted = x.optional(2)?.is_some();
    let weights: Vec<f64> = x.optional(2)?.map_or_else(|| vec![1.0; c], |w| w.iter().copied().collect());
    let mut logs = scores.into_owned().into_raw_vec_and_offset().0;
    let sizes: Option<Vec<f64>> = (site.terms && of_logits).then(|| {
        let samples = logs.chunks(c).zip(&targets);
        samples.filter_map(|(row, target)| target.map(|t| log_term(row, row[t]) * weights[t])).collect()
    });
    if of_logits {
        logs.chunks_mut(c).for_each(log_softmax_row);
    }
    // Of each sample: the plain loss, and the loss against the uniform distribution.
    let kept = || logs.chunks(c).zip(&targets).filter_map(|(row, target)| target.map(|t| (row, t)));
    let plain: Vec<f64> = kept().map(|(row, t)| -row[t] * weights[t]).collect();
    let smooth: Vec<f64> = if smoothing > 0.0 {
        kept()
            .map(|(row, _)| -pairwise(&row.iter().zip(&weights).map(|(l, w)| l * w).collect::<Vec<_>>()))
            .collect()
    } else {
        Vec::new()
    };
    let mass: Vec<f64> = kept().map(|(_, t)| weights[t]).collect();
    let divisor = if reduction == LossReduction::Mean { pairwise(&mass) } else { 1.0 };
    let spread = smoothing / c as f64;
    let mut loss = (1.0 - smoothing) * pairwise(&plain) / divisor;
    if smoothing > 0.0 {
        loss += spread * pairwise(&smooth) / divisor;
    }
    debug_assert!(weighted || weights.iter().all(|w| *w == 1.0));
    let loss = Cotangent::of(scalar(loss), sizes.map(|sizes| root_of_squares(&sizes, divisor)));
    Ok(Applied::one(loss, move |g, want| {
        let gradient = || {
            let g = seed(g) / divisor;
            let mut dx = vec![0.0; logs.len()];
            let mut sizes = vec![0.0; if want.terms { dx.len() } else { 0 }];
            let mut size = sizes.chunks_mut(c);
            for ((dx, row), target) in dx.chunks_mut(c).zip(logs.chunks(c)).zip(&targets) {
                let size = size.next();
                let Some(t) = *target else { continue };
                // With respect to the log-probabilities ...
                if smoothing > 0.0 {
                    dx.iter_mut().zip(&weights).for_each(|(dx, w)| *dx = -spread * w * g);
                }
                dx[t] -= (1.0 - smoothing) * weights[t] * g;
                // ... and through the log-softmax.
                if of_logits {
                    let sum = pairwise(dx);
                    for ((size, dx), log) in size.into_iter().flatten().zip(dx.iter()).zip(row) {
                        *size = dx.hypot(log.exp() * sum);
                    }
                    dx.iter_mut().zip(row).for_each(|(dx, log)| *dx -= log.exp() * sum);
                }
            }
            let terms = (want.terms && of_logits).then(|| from_vec(&shape, sizes).into_shared());
            Cotangent::of(from_vec(&shape, dx), terms)
        };
        vec![want.then(0, gradient), None, None]
    }))
}

/// Magnitude of the terms of `log_softmax(row)[t]` = (x − max) − log Σ: the logarithm has the
/// relative error of the sum as its absolute error, however close to 0 it is.
fn log_term(row: &[f64], x: f64) -> f64 {
    let (max, log) = shift_and_log(row);
    (x - max).hypot(log).hypot(1.0)
}

/// Magnitude of a sum's terms, divided by what the sum is divided by.
fn root_of_squares(terms: &[f64], divisor: f64) -> Terms {
    let squares: Vec<f64> = terms.iter().map(|t| t * t).collect();
    Terms::from(scalar(pairwise(&squares).sqrt() / divisor).into_shared())
}

/// What the sum over elements is divided by.
fn divisor(x: &Floats, reduction: LossReduction) -> f64 {
    match reduction {
        LossReduction::Mean => x.len() as f64,
        LossReduction::Sum => 1.0,
        LossReduction::BatchMean => x.shape().first().copied().unwrap_or(1) as f64,
    }
}

/// A loss that is a sum over pairs of elements; `da` and `db` are the derivatives.
fn pairs(
    x: Arguments<'_>,
    reduction: LossReduction,
    site: &Site<'_>,
    f: impl Fn(f64, f64) -> f64 + Sync + Send,
    da: impl Fn(f64, f64) -> f64 + Sync + Send + 'static,
    db: impl Fn(f64, f64) -> f64 + Sync + Send + 'static,
) -> Result<Applied, Fault> {
    let (a, b) = (x.float(0)?.clone(), x.float(1)?.clone());
    let divisor = divisor(&a, reduction);
    let terms = contiguous(&zip(&a, &b, f).into_shared());
    let loss = pairwise(slice(&terms)) / divisor;
    let loss = Cotangent::of(scalar(loss), site.terms.then(|| root_of_squares(slice(&terms), divisor)));
    Ok(Applied::one(loss, move |g, want| {
        let g = seed(g) / divisor;
        let wide = || -> Floats { ArrayD::from_elem(a.raw_dim(), g).into_shared() };
        vec![
            want.then(0, || -> Cotangent { zip3(&wide(), &a, &b, |g, a, b| g * da(a, b)).into() }),
            want.then(1, || -> Cotangent { zip3(&wide(), &a, &b, |g, a, b| g * db(a, b)).into() }),
        ]
    }))
}

/// (a − b)².
pub(super) fn mse(x: Arguments<'_>, reduction: LossReduction, site: &Site<'_>) -> Result<Applied, Fault> {
    pairs(x, reduction, site, |a, b| (a - b) * (a - b), |a, b| 2.0 * (a - b), |a, b| 2.0 * (b - a))
}

/// |a − b|; at NaN its derivative is 0, as `ATen`'s `sgn`.
pub(super) fn l1(x: Arguments<'_>, reduction: LossReduction, site: &Site<'_>) -> Result<Applied, Fault> {
    pairs(x, reduction, site, |a, b| (a - b).abs(), |a, b| sign(a - b), |a, b| -sign(a - b))
}

/// Quadratic below `beta`, linear above; at NaN the derivative is NaN, for `beta` 0 too.
pub(super) fn smooth_l1(
    x: Arguments<'_>,
    beta: f64,
    reduction: LossReduction,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    let slope = move |d: f64| match d {
        d if d.is_nan() => d,
        d if d.abs() < beta => d / beta,
        d => sign(d),
    };
    pairs(
        x,
        reduction,
        site,
        move |a, b| {
            let d = (a - b).abs();
            if d < beta { 0.5 * d * d / beta } else { d - 0.5 * beta }
        },
        move |a, b| slope(a - b),
        move |a, b| -slope(a - b),
    )
}

/// (1 − t)·x + log(1 + exp(−x)), written so that it does not overflow.
pub(super) fn bce_with_logits(
    x: Arguments<'_>,
    reduction: LossReduction,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    pairs(
        x,
        reduction,
        site,
        |x, t| (1.0 - t) * x + max_nan(-x, 0.0) + (-x.abs()).exp().ln_1p(),
        |x, t| 1.0 / (1.0 + (-x).exp()) - t,
        |x, _| -x,
    )
}

/// t·(log t − x), 0 where t is 0; with `log_target` exp(t)·(t − x).
pub(super) fn kl_div(
    x: Arguments<'_>,
    log_target: bool,
    reduction: LossReduction,
    site: &Site<'_>,
) -> Result<Applied, Fault> {
    if log_target {
        return pairs(
            x,
            reduction,
            site,
            |x, t| t.exp() * (t - x),
            |_, t| -t.exp(),
            |x, t| t.exp() * (t - x) + t.exp(),
        );
    }
    pairs(
        x,
        reduction,
        site,
        |x, t| if t == 0.0 { -t * x } else { t * t.ln() - t * x },
        |_, t| -t,
        |x, t| t.ln() + 1.0 - x,
    )
}
