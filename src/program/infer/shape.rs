//! Operators that move elements and compute nothing.

use super::{Reason, exactly, one};
use crate::program::{Op, Value, normalize_dim};

pub(super) fn infer(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    let first = *x.first().ok_or("takes at least one input")?;
    let dtype = first.dtype;
    let rank = first.shape.len();
    let at = |dim: isize| normalize_dim(dim, rank).map_err(|e| e.to_string());
    if !matches!(op, Op::Cat { .. } | Op::Stack { .. }) {
        let [_] = exactly(x)?;
    }
    let mut shape = first.shape.clone();
    match op {
        Op::Reshape { shape: wanted } => shape = reshape(&first.shape, wanted)?,
        Op::Permute { dims } => {
            let order = dims.iter().map(|d| at(*d)).collect::<Reason<Vec<_>>>()?;
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..rank) {
                return Err(format!("{dims:?} does not permute the {rank} dimensions of {:?}", first.shape));
            }
            shape = order.iter().map(|d| first.shape[*d]).collect();
        }
        Op::Expand { shape: wanted } => shape = expand(&first.shape, wanted)?,
        Op::Slice { dim, start, end, step } => {
            let dim = at(*dim)?;
            let (start, end) = slice_bounds(*start, *end, shape[dim]);
            if *step == 0 {
                return Err("step must be positive".to_owned());
            }
            shape[dim] = (end - start).div_ceil(*step);
        }
        Op::Select { dim, index } => {
            let dim = at(*dim)?;
            normalize_dim(*index, shape[dim])
                .map_err(|_| format!("index {index} is outside {:?}", first.shape))?;
            shape.remove(dim);
        }
        Op::Cat { dim } => {
            let dim = at(*dim)?;
            for other in &x[1..] {
                let fits = other.shape.len() == rank
                    && (0..rank).all(|d| d == dim || other.shape[d] == first.shape[d]);
                if !fits || other.dtype != dtype {
                    return Err(format!(
                        "{:?} {dtype} and {:?} {} do not join",
                        first.shape, other.shape, other.dtype
                    ));
                }
                shape[dim] += other.shape[dim];
            }
        }
        Op::Stack { dim } => {
            let dim = normalize_dim(*dim, rank + 1).map_err(|e| e.to_string())?;
            if let Some(other) = x[1..].iter().find(|v| **v != first) {
                return Err(format!(
                    "{:?} {dtype} and {:?} {} do not stack",
                    first.shape, other.shape, other.dtype
                ));
            }
            shape.insert(dim, x.len());
        }
        Op::Split { split_size, dim } => {
            let dim = at(*dim)?;
            if *split_size == 0 || shape[dim] == 0 {
                return Err("split size and dimension must be positive".to_owned());
            }
            let pieces = (0..shape[dim]).step_by(*split_size);
            return Ok(pieces
                .map(|start| {
                    let mut piece = first.clone();
                    piece.shape[dim] = (*split_size).min(shape[dim] - start);
                    piece
                })
                .collect());
        }
        Op::Pad { pad, .. } => {
            if pad.len() % 2 != 0 || pad.len() > 2 * rank {
                return Err(format!("{pad:?} is not a list of pairs for {:?}", first.shape));
            }
            for (i, pair) in pad.chunks_exact(2).enumerate() {
                let dim = rank - 1 - i;
                let size = shape[dim].checked_add_signed(pair[0]).and_then(|s| s.checked_add_signed(pair[1]));
                shape[dim] =
                    size.ok_or_else(|| format!("padding {pair:?} leaves nothing of {:?}", first.shape))?;
            }
        }
        Op::Roll { shifts, dims } => {
            if shifts.len() != dims.len() || dims.is_empty() {
                return Err(format!("{} shifts for {} dimensions", shifts.len(), dims.len()));
            }
            dims.iter().try_for_each(|d| at(*d).map(drop))?;
        }
        Op::Flip { dims } => dims.iter().try_for_each(|d| at(*d).map(drop))?,
        Op::RepeatInterleave { repeats, dim } => shape[at(*dim)?] *= repeats,
        _ => return Err("not a shape operator".to_owned()),
    }
    one(shape, dtype)
}

/// `start..end` clamped into `0..=size` as Python slices are.
pub(crate) fn slice_bounds(start: isize, end: isize, size: usize) -> (usize, usize) {
    let signed = isize::try_from(size).unwrap_or(isize::MAX);
    let clamp = |bound: isize| {
        let bound = if bound < 0 { bound.saturating_add(signed) } else { bound };
        usize::try_from(bound.clamp(0, signed)).unwrap_or(0)
    };
    let (start, end) = (clamp(start), clamp(end));
    (start, end.max(start))
}

fn reshape(from: &[usize], wanted: &[isize]) -> Reason<Vec<usize>> {
    let count: usize = from.iter().product();
    let error = || format!("{from:?} cannot be reshaped to {wanted:?}");
    let mut known = 1usize;
    let mut open = None;
    let mut shape = Vec::with_capacity(wanted.len());
    for (i, size) in wanted.iter().enumerate() {
        match usize::try_from(*size) {
            Ok(size) => {
                known = known.checked_mul(size).ok_or_else(error)?;
                shape.push(size);
            }
            Err(_) if *size == -1 && open.is_none() => {
                open = Some(i);
                shape.push(1);
            }
            Err(_) => return Err(error()),
        }
    }
    match open {
        Some(i) if known > 0 && count.is_multiple_of(known) => shape[i] = count / known,
        None if known == count => {}
        _ => return Err(error()),
    }
    Ok(shape)
}

fn expand(from: &[usize], wanted: &[isize]) -> Reason<Vec<usize>> {
    let error = || format!("{from:?} does not expand to {wanted:?}");
    let lead = wanted.len().checked_sub(from.len()).ok_or_else(error)?;
    wanted
        .iter()
        .enumerate()
        .map(|(i, size)| {
            let old = i.checked_sub(lead).map(|j| from[j]);
            match (usize::try_from(*size), old) {
                (Ok(size), None) => Ok(size),
                (Ok(size), Some(old)) if old == size || old == 1 => Ok(size),
                (Err(_), Some(old)) if *size == -1 => Ok(old),
                _ => Err(error()),
            }
        })
        .collect()
}
