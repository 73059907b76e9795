//! Losses.

use tch::{Reduction, Tensor};

use super::{OpError, Results, exactly, misrouted, one, with_optional};
use crate::program::{LossReduction, Op};

pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    one(match op {
        Op::CrossEntropy { ignore_index, label_smoothing, reduction } => {
            let ([scores, target], weight) = with_optional(x)?;
            scores.f_cross_entropy_loss(target, weight, kind(*reduction), *ignore_index, *label_smoothing)?
        }
        Op::NllLoss { ignore_index, reduction } => {
            let ([scores, target], weight) = with_optional(x)?;
            scores.f_nll_loss(target, weight, kind(*reduction), *ignore_index)?
        }
        _ => pairwise(op, x)?,
    })
}

fn pairwise(op: &Op, x: &[&Tensor]) -> Result<Tensor, OpError> {
    let [a, b] = exactly(x)?;
    Ok(match op {
        Op::MseLoss { reduction } => a.f_mse_loss(b, kind(*reduction))?,
        Op::L1Loss { reduction } => a.f_l1_loss(b, kind(*reduction))?,
        Op::SmoothL1Loss { beta, reduction } => a.f_smooth_l1_loss(b, kind(*reduction), *beta)?,
        Op::BceWithLogits { reduction } => {
            a.f_binary_cross_entropy_with_logits(b, None::<&Tensor>, None::<&Tensor>, kind(*reduction))?
        }
        // As `torch.nn.functional.kl_div` does it: the sum, divided by the batch size.
        Op::KlDiv { log_target, reduction: LossReduction::BatchMean } => {
            let batch = a.size().first().copied().unwrap_or(1);
            a.f_kl_div(b, Reduction::Sum, *log_target)?.f_div_scalar(batch)?
        }
        Op::KlDiv { log_target, reduction } => a.f_kl_div(b, kind(*reduction), *log_target)?,
        _ => return Err(misrouted(op)),
    })
}

/// `BatchMean` exists for `kl_div` alone, which handles it before.
const fn kind(reduction: LossReduction) -> Reduction {
    match reduction {
        LossReduction::Mean => Reduction::Mean,
        LossReduction::Sum | LossReduction::BatchMean => Reduction::Sum,
    }
}
