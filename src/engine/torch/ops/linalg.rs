//! Matrix products and attention.

use tch::Tensor;

use super::{OpError, Results, exactly, misrouted, one, with_optional};
use crate::engine::torch::native;
use crate::program::Op;

pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    one(match op {
        Op::Mm {} => {
            let [a, b] = exactly(x)?;
            a.f_mm(b)?
        }
        Op::Bmm {} => {
            let [a, b] = exactly(x)?;
            a.f_bmm(b)?
        }
        Op::Matmul {} => {
            let [a, b] = exactly(x)?;
            a.f_matmul(b)?
        }
        Op::Addmm { beta, alpha } => {
            let [bias, a, b] = exactly(x)?;
            native::addmm(bias, a, b, *beta, *alpha)?
        }
        Op::Baddbmm { beta, alpha } => {
            let [bias, a, b] = exactly(x)?;
            bias.f_baddbmm(a, b, *beta, *alpha)?
        }
        Op::Linear {} => {
            let ([input, weight], bias) = with_optional(x)?;
            input.f_linear(weight, bias)?
        }
        Op::ScaledDotProductAttention { is_causal, scale } => attention(x, *is_causal, *scale)?,
        _ => return Err(misrouted(op)),
    })
}

fn attention(x: &[&Tensor], is_causal: bool, scale: Option<f64>) -> Result<Tensor, OpError> {
    let ([query, key, value], mask) = with_optional(x)?;
    Ok(Tensor::f_scaled_dot_product_attention(query, key, value, mask, 0.0, is_causal, scale, false)?)
}
