//! Matrix products and attention.

use super::{Reason, exactly, is_rank, is_shape, one, same_float, with_optional};
use crate::program::{Op, Value, broadcast};

pub(super) fn infer(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    match op {
        Op::Mm {} => {
            let [a, b] = exactly(x)?;
            is_rank(a, 2, "the left operand")?;
            is_rank(b, 2, "the right operand")?;
            product(a, b)
        }
        Op::Bmm {} => {
            let [a, b] = exactly(x)?;
            is_rank(a, 3, "the left operand")?;
            is_rank(b, 3, "the right operand")?;
            if a.shape[0] != b.shape[0] {
                return Err(format!("batch sizes differ: {:?} and {:?}", a.shape, b.shape));
            }
            product(a, b)
        }
        Op::Matmul {} => {
            let [a, b] = exactly(x)?;
            product(a, b)
        }
        Op::Addmm { .. } | Op::Baddbmm { .. } => {
            let [bias, a, b] = exactly(x)?;
            let rank = if matches!(op, Op::Addmm { .. }) { 2 } else { 3 };
            is_rank(a, rank, "the left operand")?;
            is_rank(b, rank, "the right operand")?;
            same_float(x)?;
            let out = product(a, b)?;
            match broadcast(&bias.shape, &out[0].shape) {
                Ok(shape) if shape == out[0].shape => Ok(out),
                _ => Err(format!("bias {:?} does not broadcast to {:?}", bias.shape, out[0].shape)),
            }
        }
        Op::Linear {} => {
            let ([input, weight], bias) = with_optional(x)?;
            let dtype = same_float(x)?;
            is_rank(weight, 2, "the weight")?;
            let Some((last, lead)) = input.shape.split_last() else {
                return Err("the input must have at least one dimension".to_owned());
            };
            if *last != weight.shape[1] {
                return Err(format!(
                    "input {:?} does not fit weight {:?} ([out, in])",
                    input.shape, weight.shape
                ));
            }
            if let Some(bias) = bias {
                is_shape(bias, &weight.shape[..1], "the bias")?;
            }
            one(lead.iter().copied().chain([weight.shape[0]]).collect(), dtype)
        }
        Op::ScaledDotProductAttention { is_causal, .. } => attention(x, *is_causal),
        _ => Err("not a matrix product".to_owned()),
    }
}

fn product(a: &Value, b: &Value) -> Reason<Vec<Value>> {
    let dtype = same_float(&[a, b])?;
    let ([.., n, k], [.., k2, m]) = (a.shape.as_slice(), b.shape.as_slice()) else {
        return Err(format!("operands need at least 2 dimensions, got {:?} and {:?}", a.shape, b.shape));
    };
    if k != k2 {
        return Err(format!("inner dimensions differ: {:?} and {:?}", a.shape, b.shape));
    }
    let mut shape =
        broadcast(&a.shape[..a.shape.len() - 2], &b.shape[..b.shape.len() - 2]).map_err(|e| e.to_string())?;
    shape.extend([*n, *m]);
    one(shape, dtype)
}

fn attention(x: &[&Value], is_causal: bool) -> Reason<Vec<Value>> {
    let ([q, k, v], mask) = with_optional(x)?;
    let dtype = same_float(x)?;
    let ([q_batch @ .., l, e], [k_batch @ .., s, e2], [v_batch @ .., s2, ev]) =
        (q.shape.as_slice(), k.shape.as_slice(), v.shape.as_slice())
    else {
        return Err("query, key and value need at least 2 dimensions".to_owned());
    };
    if e != e2 || s != s2 || q_batch != k_batch || q_batch != v_batch {
        return Err(format!("query {:?}, key {:?} and value {:?} do not fit", q.shape, k.shape, v.shape));
    }
    if is_causal && mask.is_some() {
        return Err("takes a mask or is_causal, not both".to_owned());
    }
    if let Some(mask) = mask {
        let full: Vec<usize> = q_batch.iter().copied().chain([*l, *s]).collect();
        if broadcast(&mask.shape, &full).as_ref() != Ok(&full) {
            return Err(format!("mask {:?} does not broadcast to {full:?}", mask.shape));
        }
    }
    one(q_batch.iter().copied().chain([*l, *ev]).collect(), dtype)
}
