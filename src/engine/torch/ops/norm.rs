//! Normalisation.

use tch::Tensor;

use super::{OpError, Results, exactly, int, ints, misrouted, one, with_optional};
use crate::program::Op;

pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    match op {
        Op::LayerNorm { normalized_shape, eps } => {
            let (input, weight, bias) = weight_and_bias(x)?;
            one(input.f_layer_norm(ints(normalized_shape), weight, bias, *eps, true)?)
        }
        Op::RmsNorm { normalized_shape, eps } => {
            let ([input], weight) = with_optional(x)?;
            one(input.f_rms_norm(ints(normalized_shape), weight, *eps)?)
        }
        Op::GroupNorm { num_groups, eps } => {
            let (input, weight, bias) = weight_and_bias(x)?;
            one(input.f_group_norm(int(*num_groups), weight, bias, *eps, true)?)
        }
        Op::BatchNorm { training, momentum, eps } => {
            let [input, weight, bias, mean, var] = exactly(x)?;
            if !training {
                return one(batch_norm(input, weight, bias, mean, var, false, *momentum, *eps)?);
            }
            // libtorch updates the statistics in place; the program's inputs must not change.
            let (mean, var) = (mean.f_detach_copy()?, var.f_detach_copy()?);
            let out = batch_norm(input, weight, bias, &mean, &var, true, *momentum, *eps)?;
            Ok(vec![out, mean, var])
        }
        _ => Err(misrouted(op)),
    }
}

#[expect(clippy::too_many_arguments, reason = "libtorch's own arguments")]
fn batch_norm(
    input: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    mean: &Tensor,
    var: &Tensor,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<Tensor, OpError> {
    Ok(input.f_batch_norm(Some(weight), Some(bias), Some(mean), Some(var), training, momentum, eps, true)?)
}

type WithWeightAndBias<'a> = (&'a Tensor, Option<&'a Tensor>, Option<&'a Tensor>);

fn weight_and_bias<'a>(x: &[&'a Tensor]) -> Result<WithWeightAndBias<'a>, OpError> {
    match *x {
        [input] => Ok((input, None, None)),
        [input, weight, bias] => Ok((input, Some(weight), Some(bias))),
        _ => Err(OpError::Arguments(format!("takes 1 or 3 tensors, {} were given", x.len()))),
    }
}
