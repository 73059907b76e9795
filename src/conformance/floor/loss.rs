//! Losses: sums of terms that are differences themselves.

use super::lanes::root_sum_square;
use super::spread::{Site, Spread};
use crate::program::{LossReduction, Op};

/// Labels, weights and logarithms of one classification loss.
struct Classes<'a> {
    site: &'a Site<'a>,
    c: usize,
    smoothing: f64,
    divisor: f64,
    ignore: f64,
    /// log-sum-exp of each row of logits; 0 for log-probabilities.
    log: Vec<f64>,
}

impl<'a> Classes<'a> {
    fn of(site: &'a Site<'a>) -> Option<Self> {
        let (ignore, smoothing, reduction, logits) = match site.op {
            Op::CrossEntropy { ignore_index, label_smoothing, reduction } => {
                (*ignore_index, *label_smoothing, *reduction, true)
            }
            Op::NllLoss { ignore_index, reduction } => (*ignore_index, 0.0, *reduction, false),
            _ => return None,
        };
        let c = site.shape(0).get(1).copied().unwrap_or(1).max(1);
        let log = site.input(0).chunks(c).map(|row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, crate::numerics::max_nan);
            if logits { max + row.iter().map(|v| (v - max).exp()).sum::<f64>().ln() } else { 0.0 }
        });
        let log = log.collect();
        let mut classes = Self { site, c, smoothing, divisor: 1.0, ignore: ignore as f64, log };
        if reduction == LossReduction::Mean {
            classes.divisor = classes.kept().map(|(_, t)| classes.weight(t)).sum();
        }
        Some(classes)
    }

    /// Rows that count, with their class.
    fn kept(&self) -> impl Iterator<Item = (usize, usize)> {
        let labels = self.site.input(1).iter().enumerate().filter(|(_, label)| **label != self.ignore);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked by the reference"
        )]
        labels.map(|(row, label)| (row, *label as usize))
    }

    fn weight(&self, class: usize) -> f64 {
        self.site.input(2).get(class).copied().unwrap_or(1.0)
    }

    fn x(&self, row: usize, class: usize) -> f64 {
        self.site.input(0).get(row * self.c + class).copied().unwrap_or(0.0)
    }

    /// Magnitude of lse − x.
    fn size(&self, row: usize, class: usize) -> f64 {
        self.log[row].abs() + self.x(row, class).abs() + 1.0
    }

    fn forward(&self) -> f64 {
        let spread = self.smoothing / self.c as f64;
        self.kept()
            .map(|(row, t)| {
                let plain = (1.0 - self.smoothing) * self.weight(t) * self.size(row, t);
                let all: f64 = (0..self.c).map(|c| self.weight(c) * self.size(row, c)).sum();
                plain + spread * all
            })
            .sum::<f64>()
            / self.divisor
    }

    fn backward(&self, g: f64) -> Spread {
        let n = self.site.input(0).len();
        let mut found = Spread { terms: vec![0.0; n], saved: vec![0.0; n], extra: Vec::new() };
        let spread = self.smoothing / self.c as f64;
        let logits = matches!(self.site.op, Op::CrossEntropy { .. });
        for (row, t) in self.kept() {
            let own = |c: usize| {
                let target = if c == t { (1.0 - self.smoothing) * self.weight(t) } else { 0.0 };
                (target + spread * self.weight(c)) * (g / self.divisor).abs()
            };
            let sum: f64 = if logits { (0..self.c).map(own).sum() } else { 0.0 };
            for c in 0..self.c {
                let log = self.x(row, c) - self.log[row];
                let p = log.exp();
                let at = row * self.c + c;
                found.terms[at] = own(c) + p * (1.0 + log.abs()) * sum;
                // p is taken from the stored logarithm.
                found.saved[at] = p * log.abs() * sum;
            }
        }
        found
    }
}

fn divisor(site: &Site<'_>) -> f64 {
    let reduction = match site.op {
        Op::MseLoss { reduction }
        | Op::L1Loss { reduction }
        | Op::SmoothL1Loss { reduction, .. }
        | Op::BceWithLogits { reduction }
        | Op::KlDiv { reduction, .. } => *reduction,
        _ => LossReduction::Sum,
    };
    match reduction {
        LossReduction::Mean => site.input(0).len() as f64,
        LossReduction::BatchMean => site.shape(0).first().copied().unwrap_or(1) as f64,
        LossReduction::Sum => 1.0,
    }
}

/// log(1 + exp(−x)).
fn softplus_of_minus(x: f64) -> f64 {
    (-x.abs()).exp().ln_1p() + crate::numerics::max_nan(-x, 0.0)
}

pub(super) fn forward(site: &Site<'_>) -> Spread {
    if let Some(classes) = Classes::of(site) {
        return Spread::terms(vec![classes.forward()]);
    }
    let pairs = site.input(0).iter().zip(site.input(1));
    let root = root_sum_square(pairs.map(|(x, t)| match site.op {
        Op::BceWithLogits { .. } => ((1.0 - t) * x).hypot(softplus_of_minus(*x)),
        Op::KlDiv { log_target: true, .. } => t.exp() * t.hypot(*x),
        Op::KlDiv { .. } => {
            let entropy = if *t == 0.0 { 0.0 } else { t * t.ln() };
            entropy.hypot(t * x)
        }
        _ => 0.0,
    }));
    Spread::terms(vec![root / divisor(site)])
}

pub(super) fn backward(site: &Site<'_>, index: usize) -> Spread {
    let g = site.cotangent().first().copied().unwrap_or(0.0);
    if let Some(classes) = Classes::of(site) {
        return classes.backward(g);
    }
    let g = g.abs() / divisor(site);
    let pairs = site.input(0).iter().zip(site.input(1));
    let term = |(x, t): (&f64, &f64)| match (site.op, index) {
        (Op::BceWithLogits { .. }, 0) => g * (1.0 / (1.0 + (-x).exp()) + t.abs()),
        (Op::BceWithLogits { .. }, _) => g * (softplus_of_minus(*x) + softplus_of_minus(-x)),
        (Op::KlDiv { log_target: true, .. }, 1) => g * t.exp() * (t.abs() + x.abs() + 1.0),
        (Op::KlDiv { .. }, 1) => g * (t.ln().abs() + x.abs() + 1.0),
        _ => 0.0,
    };
    Spread::terms(pairs.map(term).collect())
}
