//! Losses: always a scalar.

use super::{Reason, exactly, is_dtype, is_rank, is_shape, one, same_float, with_optional};
use crate::numerics::DType;
use crate::program::{LossReduction, Op, Value};

pub(super) fn infer(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    let dtype = match op {
        Op::CrossEntropy { reduction, label_smoothing, .. } => {
            if !(0.0..=1.0).contains(label_smoothing) {
                return Err(format!("label_smoothing must lie in 0..=1, it is {label_smoothing}"));
            }
            classes(x, *reduction)?
        }
        Op::NllLoss { reduction, .. } => classes(x, *reduction)?,
        Op::MseLoss { reduction }
        | Op::L1Loss { reduction }
        | Op::SmoothL1Loss { reduction, .. }
        | Op::BceWithLogits { reduction }
        | Op::KlDiv { reduction, .. } => {
            let [a, b] = exactly(x)?;
            is_shape(b, &a.shape, "the target")?;
            if a.shape.contains(&0) {
                return Err("takes at least one element".to_owned());
            }
            if *reduction == LossReduction::BatchMean
                && (!matches!(op, Op::KlDiv { .. }) || a.shape.is_empty())
            {
                return Err("batchmean is a reduction of kl_div over a batch".to_owned());
            }
            same_float(x)?
        }
        _ => return Err("not a loss".to_owned()),
    };
    one(vec![], dtype)
}

fn classes(x: &[&Value], reduction: LossReduction) -> Reason<DType> {
    let ([scores, target], weight) = with_optional(x)?;
    let dtype = same_float(&[scores])?;
    is_rank(scores, 2, "the scores")?;
    is_dtype(target, DType::I64, "the target")?;
    is_shape(target, &scores.shape[..1], "the target")?;
    if scores.shape.contains(&0) {
        return Err(format!("takes at least one sample and one class, got {:?}", scores.shape));
    }
    if let Some(weight) = weight {
        is_shape(weight, &scores.shape[1..], "the class weights")?;
        same_float(&[scores, weight])?;
    }
    if reduction == LossReduction::BatchMean {
        return Err("batchmean is a reduction of kl_div".to_owned());
    }
    Ok(dtype)
}
