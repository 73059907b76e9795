//! Softmax and its relatives, and the variance.

use super::lanes::{dims, lanes, larger, root_sum_square};
use super::spread::{Site, Spread};
use crate::numerics::max_nan;
use crate::program::Op;

/// Elements of each reduction.
fn groups(site: &Site<'_>) -> Vec<Vec<usize>> {
    let shape = site.shape(0);
    let along = match site.op {
        Op::Softmax { dim } | Op::LogSoftmax { dim } => dims(&[*dim], shape.len()),
        Op::Logsumexp { dims: ds, .. } | Op::Var { dims: ds, .. } => dims(ds, shape.len()),
        _ => Vec::new(),
    };
    lanes(shape, &along)
}

fn max(x: &[f64], lane: &[usize]) -> f64 {
    lane.iter().map(|i| x[*i]).fold(f64::NEG_INFINITY, max_nan)
}

/// Mean and (biased) variance.
fn moments(x: &[f64], lane: &[usize]) -> (f64, f64) {
    let n = lane.len() as f64;
    let mean = lane.iter().map(|i| x[*i]).sum::<f64>() / n;
    (mean, lane.iter().map(|i| (x[*i] - mean).powi(2)).sum::<f64>() / n)
}

pub(super) fn forward(site: &Site<'_>) -> Spread {
    let (x, y) = (site.input(0), site.result(0));
    let mut terms = vec![0.0; y.len()];
    for (group, lane) in groups(site).iter().enumerate() {
        let m = max(x, lane);
        match site.op {
            // exp(x − m): the difference is rounded before.
            Op::Softmax { .. } => lane.iter().for_each(|i| terms[*i] = y[*i] * (1.0 + (x[*i] - m).abs())),
            Op::LogSoftmax { .. } => {
                let log = lane.iter().map(|i| (x[*i] - m).exp()).sum::<f64>().ln();
                for i in lane {
                    terms[*i] = (x[*i] - m).abs() + log.abs() + 1.0;
                }
            }
            Op::Logsumexp { .. } => terms[group] = m.abs() + (y[group] - m).abs() + 1.0,
            _ => {
                let (mean, var) = moments(x, lane);
                let scale = if var > 0.0 { y[group] / var } else { 1.0 };
                terms[group] = scale * (var * (var + mean * mean)).sqrt();
            }
        }
    }
    Spread::terms(terms)
}

pub(super) fn backward(site: &Site<'_>) -> Spread {
    let (x, y, g) = (site.input(0), site.result(0), site.cotangent());
    let mut spread = Spread { terms: vec![0.0; x.len()], saved: vec![0.0; x.len()], extra: Vec::new() };
    for (group, lane) in groups(site).iter().enumerate() {
        let m = max(x, lane);
        match site.op {
            Op::Softmax { .. } => {
                let sum: f64 = lane.iter().map(|i| g[*i] * y[*i]).sum();
                let root = root_sum_square(lane.iter().map(|i| g[*i] * y[*i]));
                for i in lane {
                    let inner = g[*i].hypot(larger(root, sum)) * (1.0 + (x[*i] - m).abs());
                    spread.terms[*i] = y[*i] * inner;
                    spread.saved[*i] = y[*i] * ((g[*i] - sum).abs() + root);
                }
            }
            Op::LogSoftmax { .. } => {
                let sum: f64 = lane.iter().map(|i| g[*i]).sum();
                let root = root_sum_square(lane.iter().map(|i| g[*i]));
                for i in lane {
                    let p = y[*i].exp();
                    let through = if p == 0.0 { 0.0 } else { p * (1.0 + y[*i].abs()) };
                    spread.terms[*i] = g[*i].abs() + through * larger(sum, root);
                    spread.saved[*i] = if p == 0.0 { 0.0 } else { (p * y[*i] * sum).abs() };
                }
            }
            Op::Logsumexp { .. } => {
                let (log, g) = (y[group], g[group]);
                for i in lane {
                    let p = (x[*i] - log).exp();
                    if p > 0.0 {
                        spread.terms[*i] = (g * p).abs() * (1.0 + (x[*i] - log).abs());
                        spread.saved[*i] = (g * p * log).abs();
                    }
                }
            }
            Op::Var { correction, .. } => {
                let (mean, var) = moments(x, lane);
                let slope = 2.0 * g[group] / (lane.len() as f64 - correction);
                let of_mean = larger(mean, (var / lane.len() as f64).sqrt());
                for i in lane {
                    spread.terms[*i] = slope.abs() * ((x[*i] - mean).abs() + of_mean);
                }
            }
            _ => {}
        }
    }
    spread
}
