//! Elementwise operators of one input.
//!
//! Derivatives take the cotangent as their first argument and select rather than multiply
//! where `ATen` selects, so that an infinite cotangent of a blocked element gives 0. What
//! happens at NaN and at kinks follows `ATen` 2.11: relu passes the gradient at NaN, clamp
//! and abs block it.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use crate::engine::reference::applied::{Applied, Arguments, Fault};
use crate::engine::reference::elementwise::{map, zip};
use crate::engine::reference::tensor::Floats;
use crate::numerics::{max_nan, min_nan};
use crate::program::{Gelu, Op};

/// √(2/π), of the tanh approximation of gelu.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// Its cubic coefficient.
const GELU_CUBIC: f64 = 0.044_715;

/// Applies an elementwise operator.
pub(super) fn pointwise(op: &Op, x: Arguments<'_>) -> Result<Applied, Fault> {
    let x = x.float(0)?;
    Ok(match *op {
        Op::Relu {} => of_input(x, |v| max_nan(v, 0.0), |g, v| if v <= 0.0 { 0.0 } else { g }),
        Op::Gelu { approximate: Gelu::None } => of_input(x, |v| v * normal_cdf(v), gelu_gradient),
        Op::Gelu { approximate: Gelu::Tanh } => {
            of_input(x, |v| 0.5 * v * (1.0 + gelu_inner(v).tanh()), gelu_tanh_gradient)
        }
        Op::Silu {} => of_input(
            x,
            |v| v / (1.0 + (-v).exp()),
            |g, v| {
                let s = sigmoid(v);
                g * s * (1.0 + v * (1.0 - s))
            },
        ),
        Op::Sigmoid {} => of_result(x, sigmoid, |g, y| g * (1.0 - y) * y),
        Op::Tanh {} => of_result(x, f64::tanh, |g, y| g * (1.0 - y * y)),
        Op::Softplus { beta, threshold } => of_input(
            x,
            move |v| if v * beta > threshold { v } else { (v * beta).exp().ln_1p() / beta },
            move |g, v| if v * beta > threshold { g } else { g * sigmoid(v * beta) },
        ),
        Op::LeakyRelu { negative_slope: slope } => of_input(
            x,
            move |v| if v > 0.0 { v } else { v * slope },
            move |g, v| if v > 0.0 { g } else { g * slope },
        ),
        Op::Hardswish {} => of_input(
            x,
            |v| v * min_nan(max_nan(v + 3.0, 0.0), 6.0) / 6.0,
            |g, v| match v {
                v if v <= -3.0 => 0.0,
                v if v < 3.0 => g * (v / 3.0 + 0.5),
                _ => g,
            },
        ),
        Op::Exp {} => of_result(x, f64::exp, |g, y| g * y),
        Op::Log {} => of_input(x, f64::ln, |g, v| g / v),
        Op::Sqrt {} => of_result(x, f64::sqrt, |g, y| g / (2.0 * y)),
        Op::Rsqrt {} => of_result(x, |v| 1.0 / v.sqrt(), |g, y| -0.5 * g * y * y * y),
        Op::Reciprocal {} => of_result(x, |v| 1.0 / v, |g, y| -g * y * y),
        Op::Erf {} => of_input(x, libm::erf, |g, v| g * FRAC_2_SQRT_PI * (-v * v).exp()),
        Op::Sin {} => of_input(x, f64::sin, |g, v| g * v.cos()),
        Op::Cos {} => of_input(x, f64::cos, |g, v| -g * v.sin()),
        Op::Abs {} => of_input(x, f64::abs, |g, v| g * sign(v)),
        Op::Neg {} => of_input(x, |v| -v, |g, _| -g),
        Op::PowScalar { exponent } => of_input(
            x,
            move |v| power(v, exponent),
            move |g, v| if exponent == 0.0 { 0.0 } else { g * (exponent * power(v, exponent - 1.0)) },
        ),
        Op::Clamp { min, max } => {
            let (low, high) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
            of_input(
                x,
                move |v| min_nan(max_nan(v, low), high),
                move |g, v| if low <= v && v <= high { g } else { 0.0 },
            )
        }
        Op::AddScalar { value } => of_input(x, move |v| v + value, |g, _| g),
        Op::MulScalar { value } => of_input(x, move |v| v * value, move |g, _| g * value),
        // Every float is f64 here: a conversion changes nothing but the noise that follows.
        Op::Cast { .. } => Applied::one(x.clone(), |g, want| vec![want.then(0, || g.clone())]),
        _ => return Err("is not elementwise".to_owned()),
    })
}

/// An operator whose derivative is written in its input.
fn of_input(
    x: &Floats,
    f: impl Fn(f64) -> f64 + Sync + Send,
    df: impl Fn(f64, f64) -> f64 + Sync + Send + 'static,
) -> Applied {
    let input = x.clone();
    Applied::one(map(x, f), move |g, want| vec![want.then(0, || zip(g, &input, &df))])
}

/// An operator whose derivative is written in its result.
fn of_result(
    x: &Floats,
    f: impl Fn(f64) -> f64 + Sync + Send,
    df: impl Fn(f64, f64) -> f64 + Sync + Send + 'static,
) -> Applied {
    Applied::by_result(map(x, f), move |g, y, want| vec![want.then(0, || zip(g, y, &df))])
}

fn sigmoid(v: f64) -> f64 {
    1.0 / (1.0 + (-v).exp())
}

/// −1, 0 or 1; 0 for NaN, as `ATen`'s `sgn` in the derivative of abs.
pub(super) fn sign(v: f64) -> f64 {
    f64::from(i8::from(v > 0.0) - i8::from(v < 0.0))
}

/// Φ(v), by the complementary error function: `1 + erf` cancels for negative v.
fn normal_cdf(v: f64) -> f64 {
    0.5 * libm::erfc(-v * FRAC_1_SQRT_2)
}

fn gelu_gradient(g: f64, v: f64) -> f64 {
    let density = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5 * (-0.5 * v * v).exp();
    g * (normal_cdf(v) + v * density)
}

fn gelu_inner(v: f64) -> f64 {
    SQRT_2_OVER_PI * (v + GELU_CUBIC * v * v * v)
}

fn gelu_tanh_gradient(g: f64, v: f64) -> f64 {
    let t = gelu_inner(v).tanh();
    let slope = SQRT_2_OVER_PI * (1.0 + 3.0 * GELU_CUBIC * v * v);
    g * (0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * slope)
}

/// Multiplication for the exponents that are met most; otherwise the library's power.
fn power(v: f64, exponent: f64) -> f64 {
    match exponent {
        1.0 => v,
        2.0 => v * v,
        3.0 => v * v * v,
        _ => v.powf(exponent),
    }
}
