//! Softmax and attention.

use candle_core::{D, DType, Result, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};

use super::situation::{
    Backend, Situation, arg, axis, constant, contiguous_if_refused, forward_only, not_mine,
};
use crate::engine::Support;
use crate::program::Op;

pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    match op {
        Op::Softmax { dim } if s.fused() && is_last(*dim, s.shape(0).len()) => {
            forward_only(s, "softmax_last_dim")
        }
        Op::ScaledDotProductAttention { .. } if fused_attention(s) => match s.backend {
            Backend::Metal => forward_only(s, "sdpa"),
            _ => forward_only(s, "CPU flash attention"),
        },
        Op::ScaledDotProductAttention { .. } => Support::Decomposed("matmul + softmax + matmul"),
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let y = match op {
        Op::Softmax { dim } => {
            let input = arg(x, 0)?;
            if s.fused() && is_last(*dim, input.rank()) {
                candle_nn::ops::softmax_last_dim(&input.contiguous()?)
            } else {
                candle_nn::ops::softmax(input, axis(*dim, input.rank())?)
            }
        }
        Op::LogSoftmax { dim } => {
            let input = arg(x, 0)?;
            candle_nn::ops::log_softmax(input, axis(*dim, input.rank())?)
        }
        Op::ScaledDotProductAttention { is_causal, scale } => {
            let [q, k, v] = [arg(x, 0)?, arg(x, 1)?, arg(x, 2)?];
            let scale = match scale {
                Some(scale) => *scale,
                None => 1.0 / (q.dim(D::Minus1)? as f64).sqrt(),
            };
            let mask = x.get(3).copied();
            if fused_attention(s) {
                fused(q, k, v, mask, scale, *is_causal, s.backend)
            } else {
                composed(q, k, v, mask, scale, *is_causal)
            }
        }
        _ => not_mine(op),
    };
    Ok(vec![y?])
}

fn is_last(dim: isize, rank: usize) -> bool {
    axis(dim, rank).is_ok_and(|dim| dim + 1 == rank)
}

/// What candle's models write out: scores, scale, mask, softmax, weighted sum.
fn composed(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    scale: f64,
    causal: bool,
) -> Result<Tensor> {
    let scores = (contiguous_if_refused(q, &k.t()?, Tensor::matmul)? * scale)?;
    let scores = match (mask, causal) {
        (Some(mask), _) => scores.broadcast_add(mask)?,
        (None, true) => {
            let (l, s) = (scores.dim(D::Minus2)?, scores.dim(D::Minus1)?);
            let hidden: Vec<u8> = (0..l).flat_map(|i| (0..s).map(move |j| u8::from(j > i))).collect();
            let hidden = Tensor::from_vec(hidden, (l, s), scores.device())?.broadcast_as(scores.shape())?;
            let minus_infinity = constant(f64::NEG_INFINITY, &[], &scores)?.broadcast_as(scores.shape())?;
            hidden.where_cond(&minus_infinity, &scores)?
        }
        (None, false) => scores,
    };
    contiguous_if_refused(&candle_nn::ops::softmax(&scores, D::Minus1)?, v, Tensor::matmul)
}

/// Whether candle has a fused attention for these arguments.
fn fused_attention(s: &Situation<'_>) -> bool {
    use crate::numerics::DType::{BF16, F16, F32};
    let [batch, _, _, width] = s.shape(0) else { return false };
    let (masked, same_width) = (s.types.len() > 3, s.shape(2).last() == Some(width));
    if !s.fused() || !same_width || masked {
        return false;
    }
    match s.backend {
        Backend::Cpu => matches!(s.dtype, F32 | F16) || (s.dtype == BF16 && *batch == 1),
        Backend::Metal => {
            matches!(s.dtype, F32 | F16 | BF16) && matches!(width, 32 | 64 | 72 | 80 | 96 | 128 | 256)
        }
        Backend::Cuda => false,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "candle's signatures take f32")]
fn fused(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    scale: f64,
    causal: bool,
    backend: Backend,
) -> Result<Tensor> {
    let scale = scale as f32;
    if backend == Backend::Metal {
        return candle_nn::ops::sdpa(
            &q.contiguous()?,
            &k.contiguous()?,
            &v.contiguous()?,
            mask,
            causal,
            scale,
            1.0,
        );
    }
    // The CPU kernel takes [batch, length, heads, width] and returns [batch, heads, length, width].
    let turn = |t: &Tensor| t.transpose(1, 2)?.contiguous();
    let (q, k, v) = (turn(q)?, turn(k)?, turn(v)?);
    let mask = if causal { AttnMask::causal() } else { AttnMask::None };
    match q.dtype() {
        DType::F16 => flash_attn::<half::f16>(&q, &k, &v, scale, mask, None, None),
        DType::BF16 => flash_attn::<half::bf16>(&q, &k, &v, scale, mask, None, None),
        _ => flash_attn::<f32>(&q, &k, &v, scale, mask, None, None),
    }
}
