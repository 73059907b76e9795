//! Reductions, sorting and selection by size.

use super::{Reason, exactly, one, same_float};
use crate::numerics::DType;
use crate::program::{Op, Value, normalize_dim};

pub(super) fn infer(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    let [input] = exactly(x)?;
    let dtype = same_float(x)?;
    let rank = input.shape.len();
    match op {
        Op::Sum { dims, keepdim }
        | Op::Mean { dims, keepdim }
        | Op::Var { dims, keepdim, .. }
        | Op::Amax { dims, keepdim }
        | Op::Amin { dims, keepdim }
        | Op::Logsumexp { dims, keepdim } => {
            let dims = reduced(dims, rank)?;
            let count: usize = dims.iter().map(|d| input.shape[*d]).product();
            if count == 0 && !matches!(op, Op::Sum { .. }) {
                return Err(format!("reduces no element: {:?} over {dims:?}", input.shape));
            }
            one(remaining(&input.shape, &dims, *keepdim), dtype)
        }
        Op::Argmax { dim, keepdim } => {
            let dim = normalize_dim(*dim, rank).map_err(|e| e.to_string())?;
            if input.shape[dim] == 0 {
                return Err("has no maximum over no element".to_owned());
            }
            one(remaining(&input.shape, &[dim], *keepdim), DType::I64)
        }
        Op::Topk { k, dim, .. } => {
            let dim = normalize_dim(*dim, rank).map_err(|e| e.to_string())?;
            if *k > input.shape[dim] {
                return Err(format!("k = {k} is more than the {} elements there are", input.shape[dim]));
            }
            let mut shape = input.shape.clone();
            shape[dim] = *k;
            Ok(vec![Value { shape: shape.clone(), dtype }, Value { shape, dtype: DType::I64 }])
        }
        Op::Sort { dim, .. } => {
            normalize_dim(*dim, rank).map_err(|e| e.to_string())?;
            Ok(vec![input.clone(), Value { shape: input.shape.clone(), dtype: DType::I64 }])
        }
        _ => Err("not a reduction".to_owned()),
    }
}

/// Normalised, distinct dimensions; all of them when none is named.
fn reduced(dims: &[isize], rank: usize) -> Reason<Vec<usize>> {
    if dims.is_empty() {
        return Ok((0..rank).collect());
    }
    let mut out = Vec::with_capacity(dims.len());
    for dim in dims {
        let dim = normalize_dim(*dim, rank).map_err(|e| e.to_string())?;
        if out.contains(&dim) {
            return Err(format!("dimension {dim} appears twice in {dims:?}"));
        }
        out.push(dim);
    }
    Ok(out)
}

fn remaining(shape: &[usize], dims: &[usize], keepdim: bool) -> Vec<usize> {
    let kept = shape.iter().enumerate();
    if keepdim {
        kept.map(|(i, size)| if dims.contains(&i) { 1 } else { *size }).collect()
    } else {
        kept.filter(|(i, _)| !dims.contains(i)).map(|(_, size)| *size).collect()
    }
}
