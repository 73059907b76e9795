//! Losses.
//!
//! `candle_nn` knows no ignored class. Where `ignore_index` cannot be a class (−100 by
//! default) and no label has that value, its functions are called; labels are looked at for
//! that. Labels that are to be ignored take the decomposition, as they do with class weights.

use candle_core::{DType, Result, Tensor};
use candle_nn::loss;

use super::pointwise::log_one_plus_exp_of_minus_abs;
use super::situation::{Situation, arg, constant, not_mine};
use crate::engine::Support;
use crate::program::{LossReduction, Op};

pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    use LossReduction::Mean;
    match op {
        Op::CrossEntropy { .. } if !plain_classes(op, s.types.len(), s.dim(0, 1)) => {
            Support::Decomposed("log_softmax + gather")
        }
        Op::NllLoss { .. } if !plain_classes(op, s.types.len(), s.dim(0, 1)) => {
            Support::Decomposed("gather + weighted sum")
        }
        Op::MseLoss { reduction } if *reduction != Mean => Support::Decomposed("sub + sqr + sum"),
        Op::L1Loss { .. } => Support::Decomposed("sub + abs + reduction"),
        Op::SmoothL1Loss { beta, reduction } if *reduction == Mean && *beta > 0.0 => {
            Support::Decomposed("huber / beta")
        }
        Op::SmoothL1Loss { .. } => Support::Decomposed("where_cond + reduction"),
        Op::BceWithLogits { reduction } if *reduction != Mean => {
            Support::Decomposed("relu(x) - x·t + log(1 + exp(-|x|))")
        }
        Op::KlDiv { .. } => Support::Decomposed("target·(log target - input)"),
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, _s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let (a, t) = (arg(x, 0)?, arg(x, 1)?);
    let y = match op {
        Op::CrossEntropy { ignore_index, .. }
            if plain_classes(op, x.len(), a.dim(1)?) && !occurs(*ignore_index, t)? =>
        {
            loss::cross_entropy(a, t)
        }
        Op::NllLoss { ignore_index, .. }
            if plain_classes(op, x.len(), a.dim(1)?) && !occurs(*ignore_index, t)? =>
        {
            loss::nll(a, t)
        }
        Op::CrossEntropy { ignore_index, label_smoothing, reduction } => {
            let scores = candle_nn::ops::log_softmax(a, 1)?;
            weighted_nll(&scores, t, x.get(2).copied(), *ignore_index, *label_smoothing, *reduction)
        }
        Op::NllLoss { ignore_index, reduction } => {
            weighted_nll(a, t, x.get(2).copied(), *ignore_index, 0.0, *reduction)
        }
        Op::MseLoss { reduction: LossReduction::Mean } => loss::mse(a, t),
        Op::MseLoss { reduction } => reduce(&(a - t)?.sqr()?, *reduction),
        Op::L1Loss { reduction } => reduce(&(a - t)?.abs()?, *reduction),
        Op::SmoothL1Loss { beta, reduction: LossReduction::Mean } if *beta > 0.0 => {
            loss::huber(a, t, *beta)? / *beta
        }
        Op::SmoothL1Loss { beta, reduction } => reduce(&smooth_l1(a, t, *beta)?, *reduction),
        Op::BceWithLogits { reduction: LossReduction::Mean } => loss::binary_cross_entropy_with_logit(a, t),
        Op::BceWithLogits { reduction } => {
            let linear = (a.relu()? - (a * t)?)?;
            reduce(&(linear + log_one_plus_exp_of_minus_abs(a)?)?, *reduction)
        }
        Op::KlDiv { log_target, reduction } => reduce(&divergence(a, t, *log_target)?, *reduction),
        _ => not_mine(op),
    };
    Ok(vec![y?])
}

fn reduce(x: &Tensor, reduction: LossReduction) -> Result<Tensor> {
    match reduction {
        LossReduction::Mean => x.mean_all(),
        LossReduction::Sum => x.sum_all(),
        LossReduction::BatchMean => x.sum_all()? / x.dim(0)? as f64,
    }
}

/// Whether `candle_nn::loss` has it: mean, no weights, no smoothing, nothing to ignore.
fn plain_classes(op: &Op, arguments: usize, classes: usize) -> bool {
    let (ignored, smoothing, reduction) = match op {
        Op::CrossEntropy { ignore_index, label_smoothing, reduction } => {
            (*ignore_index, *label_smoothing, *reduction)
        }
        Op::NllLoss { ignore_index, reduction } => (*ignore_index, 0.0, *reduction),
        _ => return false,
    };
    let ignores_a_class = usize::try_from(ignored).is_ok_and(|class| class < classes);
    arguments == 2 && reduction == LossReduction::Mean && smoothing == 0.0 && !ignores_a_class
}

/// Whether a label is to be ignored.
fn occurs(ignored: i64, labels: &Tensor) -> Result<bool> {
    Ok(labels.eq(ignored)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()? > 0.0)
}

/// Negative log-likelihood of log-probabilities `[n, c]`, as `ATen` defines it with class
/// weights, an ignored class and label smoothing.
fn weighted_nll(
    scores: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    ignored: i64,
    smoothing: f64,
    reduction: LossReduction,
) -> Result<Tensor> {
    let classes = scores.dim(1)?;
    let counted = target.ne(ignored)?;
    let target = counted.where_cond(target, &target.zeros_like()?)?;
    let weights = match weight {
        Some(weight) => weight.clone(),
        None => constant(1.0, &[classes], scores)?,
    };
    let counted = counted.to_dtype(scores.dtype())?;
    let row_weights = (weights.index_select(&target, 0)? * &counted)?;
    let picked = scores.gather(&target.unsqueeze(1)?, 1)?.squeeze(1)?;
    let total = (picked * &row_weights)?.sum_all()?.neg()?;
    let scale = |x: Tensor| match reduction {
        LossReduction::Sum | LossReduction::BatchMean => Ok(x),
        LossReduction::Mean => x / row_weights.sum_all()?,
    };
    let nll = scale(total)?;
    if smoothing == 0.0 {
        return Ok(nll);
    }
    let spread = (scores.broadcast_mul(&weights)?.sum(1)? * &counted)?.sum_all()?.neg()?;
    (nll * (1.0 - smoothing))? + (scale(spread)? * (smoothing / classes as f64))?
}

fn smooth_l1(a: &Tensor, t: &Tensor, beta: f64) -> Result<Tensor> {
    let difference = (a - t)?;
    let size = difference.abs()?;
    if beta <= 0.0 {
        return Ok(size);
    }
    let small = size.lt(beta)?;
    small.where_cond(&(difference.sqr()? * (0.5 / beta))?, &(size - 0.5 * beta)?)
}

/// target·(log target − input), 0 where the target is 0.
fn divergence(input: &Tensor, target: &Tensor, log_target: bool) -> Result<Tensor> {
    if log_target {
        return target.exp()? * (target - input)?;
    }
    let positive = target.gt(0.0)?;
    let safe = positive.where_cond(target, &target.ones_like()?)?;
    let entropy = (target * safe.log()?)?;
    entropy - (target * input)?
}
