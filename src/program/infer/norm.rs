//! Normalisation.

use super::{Reason, exactly, is_shape, one, same_float, with_optional};
use crate::program::{Op, Value};

pub(super) fn infer(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    let dtype = same_float(x)?;
    let input = x[0];
    match op {
        Op::LayerNorm { normalized_shape, .. } => {
            trailing(input, normalized_shape)?;
            for (what, value) in ["the weight", "the bias"].into_iter().zip(weight_and_bias(x)?) {
                is_shape(value, normalized_shape, what)?;
            }
        }
        Op::RmsNorm { normalized_shape, .. } => {
            trailing(input, normalized_shape)?;
            let ([_], weight) = with_optional(x)?;
            if let Some(weight) = weight {
                is_shape(weight, normalized_shape, "the weight")?;
            }
        }
        Op::GroupNorm { num_groups, .. } => {
            let channels = *input.shape.get(1).ok_or("the input needs a channel dimension")?;
            if *num_groups == 0 || channels % num_groups != 0 {
                return Err(format!("{channels} channels do not divide into {num_groups} groups"));
            }
            for (what, value) in ["the weight", "the bias"].into_iter().zip(weight_and_bias(x)?) {
                is_shape(value, &[channels], what)?;
            }
        }
        Op::BatchNorm { training, .. } => {
            let [_, weight, bias, mean, var] = exactly(x)?;
            let channels = *input.shape.get(1).ok_or("the input needs a channel dimension")?;
            let names = ["the weight", "the bias", "the running mean", "the running variance"];
            for (what, value) in names.into_iter().zip([weight, bias, mean, var]) {
                is_shape(value, &[channels], what)?;
            }
            if *training {
                let samples: usize = input.shape.iter().product::<usize>() / channels.max(1);
                if samples < 2 {
                    return Err("training needs more than one value per channel".to_owned());
                }
                return Ok(vec![input.clone(), mean.clone(), var.clone()]);
            }
        }
        _ => return Err("not a normalisation".to_owned()),
    }
    one(input.shape.clone(), dtype)
}

fn weight_and_bias<'a>(x: &[&'a Value]) -> Reason<Vec<&'a Value>> {
    match x.len() {
        1 | 3 => Ok(x[1..].to_vec()),
        n => Err(format!("takes 1 input, or 3 with weight and bias, {n} were given")),
    }
}

fn trailing(input: &Value, normalized: &[usize]) -> Reason<()> {
    if !normalized.is_empty() && input.shape.ends_with(normalized) && !normalized.contains(&0) {
        Ok(())
    } else {
        Err(format!("normalized_shape {normalized:?} is not the end of {:?}", input.shape))
    }
}
