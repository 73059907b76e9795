//! Elementwise operators, casts and dropout.

use candle_core::{Result, Tensor};
use candle_nn::{Activation, Module};

use super::situation::{Situation, arg, not_mine};
use super::transfer::to_candle;
use crate::engine::Support;
use crate::program::{Gelu, Op};

pub(super) fn supports(op: &Op, _s: &Situation<'_>) -> Support {
    match op {
        Op::Softplus { .. } => Support::Decomposed("relu + log(1 + exp(-|x|))"),
        Op::Rsqrt {} => Support::Decomposed("sqrt + recip"),
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, _s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let a = arg(x, 0)?;
    let b = || arg(x, 1);
    let y = match op {
        Op::Relu {} => a.relu(),
        Op::Gelu { approximate: Gelu::None } => a.gelu_erf(),
        Op::Gelu { approximate: Gelu::Tanh } => a.gelu(),
        Op::Silu {} => a.silu(),
        Op::Sigmoid {} => candle_nn::ops::sigmoid(a),
        Op::Tanh {} => a.tanh(),
        Op::Softplus { beta, threshold } => softplus(a, *beta, *threshold),
        Op::LeakyRelu { negative_slope } => candle_nn::ops::leaky_relu(a, *negative_slope),
        Op::Hardswish {} => Activation::HardSwish.forward(a),
        Op::Exp {} => a.exp(),
        Op::Log {} => a.log(),
        Op::Sqrt {} => a.sqrt(),
        Op::Rsqrt {} => a.sqrt()?.recip(),
        Op::Reciprocal {} => a.recip(),
        Op::Erf {} => a.erf(),
        Op::Sin {} => a.sin(),
        Op::Cos {} => a.cos(),
        Op::Abs {} => a.abs(),
        Op::Neg {} => a.neg(),
        Op::PowScalar { exponent } => a.powf(*exponent),
        Op::Clamp { min, max } => clamp(a, *min, *max),
        Op::AddScalar { value } => a + *value,
        Op::MulScalar { value } => a * *value,
        Op::Add {} => a.broadcast_add(b()?),
        Op::Sub {} => a.broadcast_sub(b()?),
        Op::Mul {} => a.broadcast_mul(b()?),
        Op::Div {} => a.broadcast_div(b()?),
        Op::Maximum {} => a.broadcast_maximum(b()?),
        Op::Minimum {} => a.broadcast_minimum(b()?),
        Op::Cast { dtype } => a.to_dtype(to_candle(*dtype)),
        // The arithmetic of `candle_nn::ops::dropout`, with the mask given.
        Op::Dropout { p } => a * (b()?.to_dtype(a.dtype())? * (1.0 / (1.0 - p)))?,
        _ => not_mine(op),
    };
    Ok(vec![y?])
}

fn clamp(x: &Tensor, min: Option<f64>, max: Option<f64>) -> Result<Tensor> {
    match (min, max) {
        (Some(min), Some(max)) => x.clamp(min, max),
        (Some(min), None) => x.maximum(min),
        (None, Some(max)) => x.minimum(max),
        (None, None) => Ok(x.clone()),
    }
}

/// Both branches stay finite, so that the gradient of the one not taken is zero, not NaN.
fn softplus(x: &Tensor, beta: f64, threshold: f64) -> Result<Tensor> {
    let t = (x * beta)?;
    let linear = t.gt(threshold)?;
    let t = linear.where_cond(&t.zeros_like()?, &t)?;
    let soft = ((t.relu()? + log_one_plus_exp_of_minus_abs(&t)?)? * (1.0 / beta))?;
    linear.where_cond(x, &soft)
}

/// log(1 + e^-|x|), what log(1 + e^x) has beyond relu(x); it cannot overflow.
pub(super) fn log_one_plus_exp_of_minus_abs(x: &Tensor) -> Result<Tensor> {
    (x.abs()?.neg()?.exp()? + 1.0)?.log()
}
