//! Elementwise operators and those that keep their input's shape.

use tch::{Kind, Tensor};

use super::{OpError, Results, dim, exactly, misrouted, one};
use crate::engine::torch::native;
use crate::engine::torch::tensor::kind_of;
use crate::program::{Gelu, Op};

pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    match x {
        [input] => one(unary(op, input)?),
        _ => one(binary(op, x)?),
    }
}

fn unary(op: &Op, x: &Tensor) -> Result<Tensor, OpError> {
    Ok(match op {
        Op::Relu {} => x.f_relu()?,
        Op::Gelu { approximate: Gelu::None } => x.f_gelu("none")?,
        Op::Gelu { approximate: Gelu::Tanh } => x.f_gelu("tanh")?,
        Op::Silu {} => x.f_silu()?,
        Op::Sigmoid {} => x.f_sigmoid()?,
        Op::Tanh {} => x.f_tanh()?,
        Op::Softplus { beta, threshold } => native::softplus(x, *beta, *threshold)?,
        Op::LeakyRelu { negative_slope } => native::leaky_relu(x, *negative_slope)?,
        Op::Hardswish {} => x.f_hardswish()?,
        Op::Exp {} => x.f_exp()?,
        Op::Log {} => x.f_log()?,
        Op::Sqrt {} => x.f_sqrt()?,
        Op::Rsqrt {} => x.f_rsqrt()?,
        Op::Reciprocal {} => x.f_reciprocal()?,
        Op::Erf {} => x.f_erf()?,
        Op::Sin {} => x.f_sin()?,
        Op::Cos {} => x.f_cos()?,
        Op::Abs {} => x.f_abs()?,
        Op::Neg {} => x.f_neg()?,
        Op::PowScalar { exponent } => x.f_pow_tensor_scalar(*exponent)?,
        Op::Clamp { min: Some(min), max: Some(max) } => x.f_clamp(*min, *max)?,
        Op::Clamp { min: Some(min), max: None } => x.f_clamp_min(*min)?,
        Op::Clamp { min: None, max: Some(max) } => x.f_clamp_max(*max)?,
        // libtorch refuses a clamp without bounds; a copy is what it means.
        Op::Clamp { min: None, max: None } => x.f_to_dtype(x.f_kind()?, false, true)?,
        Op::AddScalar { value } => x.f_add_scalar(*value)?,
        Op::MulScalar { value } => x.f_mul_scalar(*value)?,
        Op::Softmax { dim: d } => x.f_softmax(dim(*d), None)?,
        Op::LogSoftmax { dim: d } => x.f_log_softmax(dim(*d), None)?,
        Op::Cumsum { dim: d } => x.f_cumsum(dim(*d), None)?,
        // A copy even to the same dtype: result and argument have gradients of their own.
        Op::Cast { dtype } => x.f_to_dtype(kind_of(*dtype), false, true)?,
        _ => return Err(misrouted(op)),
    })
}

fn binary(op: &Op, x: &[&Tensor]) -> Result<Tensor, OpError> {
    let [a, b] = exactly(x)?;
    Ok(match op {
        Op::Add {} => a.f_add(b)?,
        Op::Sub {} => a.f_sub(b)?,
        Op::Mul {} => a.f_mul(b)?,
        Op::Div {} => a.f_div(b)?,
        Op::Maximum {} => a.f_maximum(b)?,
        Op::Minimum {} => a.f_minimum(b)?,
        Op::Dropout { p } => a.f_mul(&mask(b)?)?.f_mul_scalar(1.0 / (1.0 - p))?,
        _ => return Err(misrouted(op)),
    })
}

/// A program's masks are `U8`; libtorch's are boolean.
pub(super) fn mask(x: &Tensor) -> Result<Tensor, OpError> {
    Ok(x.f_to_dtype(Kind::Bool, false, false)?)
}
