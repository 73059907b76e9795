//! Gathering, scattering and selection by mask.

use super::{Reason, exactly, is_dtype, is_rank, is_shape, one, same_float};
use crate::numerics::DType;
use crate::program::{Op, Value, broadcast, normalize_dim};

pub(super) fn infer(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    match op {
        Op::Embedding {} => {
            let [table, index] = exactly(x)?;
            let dtype = same_float(&[table])?;
            is_rank(table, 2, "the table")?;
            is_dtype(index, DType::I64, "the index")?;
            one(index.shape.iter().copied().chain([table.shape[1]]).collect(), dtype)
        }
        Op::IndexSelect { dim } => {
            let [input, index] = exactly(x)?;
            let dtype = same_float(&[input])?;
            is_dtype(index, DType::I64, "the index")?;
            is_rank(index, 1, "the index")?;
            let dim = normalize_dim(*dim, input.shape.len()).map_err(|e| e.to_string())?;
            let mut shape = input.shape.clone();
            shape[dim] = index.shape[0];
            one(shape, dtype)
        }
        Op::Gather { dim } => {
            let [input, index] = exactly(x)?;
            let dtype = same_float(&[input])?;
            fits(&input.shape, index, *dim)?;
            one(index.shape.clone(), dtype)
        }
        Op::ScatterAdd { dim } => {
            let [input, index, source] = exactly(x)?;
            let dtype = same_float(&[input, source])?;
            fits(&input.shape, index, *dim)?;
            let inside = source.shape.len() == index.shape.len()
                && index.shape.iter().zip(&source.shape).all(|(i, s)| i <= s);
            if !inside {
                return Err(format!("index {:?} is larger than the source {:?}", index.shape, source.shape));
            }
            one(input.shape.clone(), dtype)
        }
        Op::IndexPut { .. } => {
            let [input, index, values] = exactly(x)?;
            let dtype = same_float(&[input, values])?;
            is_dtype(index, DType::I64, "the index")?;
            is_rank(index, 1, "the index")?;
            let rest = input.shape.get(1..).ok_or("the input needs at least one dimension")?;
            let expected: Vec<usize> = index.shape.iter().chain(rest).copied().collect();
            is_shape(values, &expected, "the values")?;
            one(input.shape.clone(), dtype)
        }
        Op::Where {} => {
            let [condition, a, b] = exactly(x)?;
            is_dtype(condition, DType::U8, "the condition")?;
            let dtype = same_float(&[a, b])?;
            let shape = broadcast(&a.shape, &b.shape).and_then(|ab| broadcast(&ab, &condition.shape));
            one(shape.map_err(|e| e.to_string())?, dtype)
        }
        Op::MaskedFill { .. } => {
            let [input, mask] = exactly(x)?;
            let dtype = same_float(&[input])?;
            is_dtype(mask, DType::U8, "the mask")?;
            if broadcast(&input.shape, &mask.shape).as_ref() != Ok(&input.shape) {
                return Err(format!("mask {:?} does not broadcast to {:?}", mask.shape, input.shape));
            }
            one(input.shape.clone(), dtype)
        }
        _ => Err("not an indexing operator".to_owned()),
    }
}

/// The index has the input's rank and stays inside it in every dimension but `dim`.
fn fits(input: &[usize], index: &Value, dim: isize) -> Reason<()> {
    is_dtype(index, DType::I64, "the index")?;
    is_rank(index, input.len(), "the index")?;
    let dim = normalize_dim(dim, input.len()).map_err(|e| e.to_string())?;
    match (0..input.len()).find(|d| *d != dim && index.shape[*d] > input[*d]) {
        Some(d) => Err(format!("index {:?} is larger than {input:?} in dimension {d}", index.shape)),
        None => Ok(()),
    }
}
