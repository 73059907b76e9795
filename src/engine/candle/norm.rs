//! Normalisation.

use candle_core::{DType, Result, Tensor};
use candle_nn::{BatchNorm, GroupNorm, LayerNorm, Module, ModuleT, RmsNorm};

use super::situation::{Situation, arg, constant, forward_only, not_mine};
use crate::engine::Support;
use crate::program::Op;

pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    let fused = match op {
        Op::LayerNorm { .. } => s.fused() && s.types.len() == 3,
        Op::RmsNorm { .. } => s.fused(),
        _ => false,
    };
    if fused && s.dtype == crate::numerics::DType::F64 {
        return Support::Unsupported("candle's fused norms have no f64".to_owned());
    }
    match op {
        Op::LayerNorm { .. } if s.fused() && s.types.len() == 3 => forward_only(s, "fused layer norm"),
        Op::RmsNorm { .. } if s.fused() => forward_only(s, "fused RMS norm"),
        Op::LayerNorm { normalized_shape, .. } | Op::RmsNorm { normalized_shape, .. }
            if normalized_shape.len() > 1 =>
        {
            Support::Decomposed("reshape + norm over the last dimension")
        }
        Op::GroupNorm { .. } if s.shape(0).len() == 2 => Support::Decomposed("unsqueeze + group_norm"),
        Op::BatchNorm { training: true, .. } if half(s) => {
            Support::Decomposed("batch_norm with running statistics in f32")
        }
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let input = arg(x, 0)?;
    match op {
        Op::LayerNorm { normalized_shape, eps } => {
            over_last(input, normalized_shape, |rows| layer_norm(rows, *eps, s, x))
        }
        Op::RmsNorm { normalized_shape, eps } => over_last(input, normalized_shape, |rows| {
            let layer = RmsNorm::new(flat_or_ones(x.get(1), rows)?, *eps);
            if s.fused() { layer.forward(&rows.contiguous()?) } else { layer.forward_diff(rows) }
        }),
        Op::GroupNorm { num_groups, eps } => group_norm(input, *num_groups, *eps, x),
        Op::BatchNorm { training, momentum, eps } => batch_norm(x, *training, *momentum, *eps),
        _ => not_mine(op),
    }
}

fn half(s: &Situation<'_>) -> bool {
    matches!(s.dtype, crate::numerics::DType::F16 | crate::numerics::DType::BF16)
}

/// candle normalises the last dimension only: several are flattened into one.
fn over_last(
    x: &Tensor,
    normalized: &[usize],
    norm: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Vec<Tensor>> {
    if normalized.len() <= 1 {
        return Ok(vec![norm(x)?]);
    }
    let size: usize = normalized.iter().product();
    Ok(vec![norm(&x.reshape(((), size))?)?.reshape(x.shape())?])
}

fn flat_or_ones(weight: Option<&&Tensor>, rows: &Tensor) -> Result<Tensor> {
    match weight {
        Some(weight) => weight.flatten_all(),
        None => constant(1.0, &[rows.dim(candle_core::D::Minus1)?], rows),
    }
}

/// `candle_nn`'s layer forwards to the fused kernel, which has no gradient, whenever the
/// input is contiguous; `layer_norm_slow` is its differentiable sibling. Without a bias the
/// layer itself is differentiable.
fn layer_norm(rows: &Tensor, eps: f64, s: &Situation<'_>, x: &[&Tensor]) -> Result<Tensor> {
    let weight = flat_or_ones(x.get(1), rows)?;
    let Some(bias) = x.get(2) else {
        return LayerNorm::new_no_bias(weight, eps).forward(rows);
    };
    let bias = bias.flatten_all()?;
    if s.fused() {
        return LayerNorm::new(weight, bias, eps).forward(&rows.contiguous()?);
    }
    #[expect(clippy::cast_possible_truncation, reason = "candle's signature takes f32")]
    candle_nn::ops::layer_norm_slow(rows, &weight, &bias, eps as f32)
}

fn group_norm(input: &Tensor, groups: usize, eps: f64, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let channels = input.dim(1)?;
    let parameter = |i: usize, default: f64| match x.get(i) {
        Some(tensor) => Ok((*tensor).clone()),
        None => constant(default, &[channels], input),
    };
    let layer = GroupNorm::new(parameter(1, 1.0)?, parameter(2, 0.0)?, channels, groups, eps)?;
    if input.rank() == 2 {
        return Ok(vec![layer.forward(&input.unsqueeze(2)?)?.squeeze(2)?]);
    }
    Ok(vec![layer.forward(input)?])
}

fn batch_norm(x: &[&Tensor], training: bool, momentum: f64, eps: f64) -> Result<Vec<Tensor>> {
    let (input, weight, bias) = (arg(x, 0)?, arg(x, 1)?, arg(x, 2)?);
    let channels = input.dim(1)?;
    let dtype = input.dtype();
    // Training computes in f32 for half inputs and adds to the running statistics as they
    // are, which fails unless those are f32 too.
    let held = if training && matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
    let mean = arg(x, 3)?.detach().to_dtype(held)?;
    let var = arg(x, 4)?.detach().to_dtype(held)?;
    let layer =
        BatchNorm::new_with_momentum(channels, mean, var, weight.clone(), bias.clone(), eps, momentum)?;
    let y = layer.forward_t(input, training)?;
    if !training {
        return Ok(vec![y]);
    }
    let updated = |t: &Tensor| t.detach().to_dtype(dtype);
    Ok(vec![y, updated(layer.running_mean())?, updated(layer.running_var())?])
}
