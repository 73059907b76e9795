//! Elementwise operators of one input: where their formulas cancel.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::spread::{Site, Spread};
use crate::program::{Gelu, Op};

/// gelu is x/2 + x/2·erf(..), which cancels for negative x.
pub(super) fn forward(site: &Site<'_>) -> Spread {
    Spread::terms(site.input(0).iter().map(|x| 0.5 * x.abs()).collect())
}

pub(super) fn backward(site: &Site<'_>) -> Spread {
    let (x, y, g) = (site.input(0), site.result(0), site.cotangent());
    let mut spread = Spread::default();
    for ((x, y), g) in x.iter().zip(y).zip(g) {
        let (terms, saved) = sensitivity(site.op, *x, *y);
        spread.terms.push(terms * g.abs());
        spread.saved.push(saved * g.abs());
    }
    spread
}

/// Magnitude of the terms of the derivative at x, and what a relative change of the stored
/// result y does to it.
fn sensitivity(op: &Op, x: f64, y: f64) -> (f64, f64) {
    let logistic = |v: f64| 1.0 / (1.0 + (-v).exp());
    match op {
        Op::Gelu { approximate: Gelu::None } => {
            let density = 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (-0.5 * x * x).exp();
            (0.5 + 0.5 * libm::erf(x * FRAC_1_SQRT_2).abs() + x.abs() * density, 0.0)
        }
        Op::Gelu { .. } => (1.0 + 0.5 * x.abs(), 0.0),
        Op::Silu {} => {
            let s = logistic(x);
            (s * (1.0 + x.abs() * (1.0 - s)), 0.0)
        }
        Op::Sigmoid {} => (y.abs(), (y * (1.0 - 2.0 * y)).abs()),
        Op::Tanh {} => (1.0, 2.0 * y * y),
        Op::Hardswish {} => (0.5 + (x / 3.0).abs(), 0.0),
        Op::Exp {} => (y.abs(), y.abs()),
        Op::Sqrt {} => (0.5 / y.abs(), 0.5 / y.abs()),
        Op::Rsqrt {} => (0.5 * (y * y * y).abs(), 1.5 * (y * y * y).abs()),
        Op::Reciprocal {} => (y * y, 2.0 * y * y),
        // exp(−x²): the square is rounded before.
        Op::Erf {} => (FRAC_2_SQRT_PI * (-x * x).exp() * (1.0 + x * x), 0.0),
        _ => (0.0, 0.0),
    }
}
