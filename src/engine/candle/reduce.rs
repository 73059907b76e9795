//! Reductions, sorting and selection by size.

use candle_core::{DType, Result, Tensor};

use super::situation::{Situation, arg, axes, axis, not_mine};
use crate::engine::Support;
use crate::program::Op;

pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    let rank = s.shape(0).len();
    match op {
        Op::Var { dims, correction, .. } if !native_variance(dims, *correction, rank) => {
            Support::Decomposed("mean + sub + sqr + sum")
        }
        Op::Amax { dims, .. } | Op::Amin { dims, .. } if dims.len() > 1 => {
            Support::Decomposed("one dimension after another")
        }
        Op::Topk { .. } => Support::Decomposed("sort_last_dim + narrow"),
        Op::Sort { dim, .. } if axis(*dim, rank).is_ok_and(|dim| dim + 1 < rank) => {
            Support::Decomposed("transpose + sort_last_dim")
        }
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, _s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let a = arg(x, 0)?;
    let rank = a.rank();
    let y = match op {
        Op::Sum { dims, keepdim: false } if dims.is_empty() => a.sum_all(),
        Op::Sum { dims, keepdim: false } => a.sum(axes(dims, rank)?),
        Op::Sum { dims, keepdim: true } => a.sum_keepdim(axes(dims, rank)?),
        Op::Mean { dims, keepdim: false } if dims.is_empty() => a.mean_all(),
        Op::Mean { dims, keepdim: false } => a.mean(axes(dims, rank)?),
        Op::Mean { dims, keepdim: true } => a.mean_keepdim(axes(dims, rank)?),
        Op::Var { dims, correction, keepdim } => variance(a, dims, *correction, *keepdim),
        Op::Amax { dims, keepdim } => extremum(a, dims, *keepdim, Tensor::max_all, Tensor::max_keepdim),
        Op::Amin { dims, keepdim } => extremum(a, dims, *keepdim, Tensor::min_all, Tensor::min_keepdim),
        Op::Logsumexp { dims, keepdim } => {
            let dims = axes(dims, rank)?;
            keep(a.log_sum_exp(dims.clone())?, a, &dims, *keepdim)
        }
        Op::Cumsum { dim } => a.cumsum(axis(*dim, rank)?),
        Op::Argmax { dim, keepdim: false } => a.argmax(axis(*dim, rank)?)?.to_dtype(DType::I64),
        Op::Argmax { dim, keepdim: true } => a.argmax_keepdim(axis(*dim, rank)?)?.to_dtype(DType::I64),
        Op::Topk { k, dim, largest } => return sorted(a, axis(*dim, rank)?, *largest, Some(*k)),
        Op::Sort { dim, descending } => return sorted(a, axis(*dim, rank)?, *descending, None),
        _ => not_mine(op),
    };
    Ok(vec![y?])
}

/// The shape of `x` with 1 at `dims`.
fn keep(reduced: Tensor, x: &Tensor, dims: &[usize], keepdim: bool) -> Result<Tensor> {
    if !keepdim {
        return Ok(reduced);
    }
    let shape: Vec<usize> =
        x.dims().iter().enumerate().map(|(i, size)| if dims.contains(&i) { 1 } else { *size }).collect();
    reduced.reshape(shape)
}

/// candle's `var` takes one dimension and divides by n − 1.
fn native_variance(dims: &[isize], correction: f64, rank: usize) -> bool {
    correction == 1.0 && (dims.len() == 1 || dims.is_empty() && rank == 1)
}

fn variance(x: &Tensor, dims: &[isize], correction: f64, keepdim: bool) -> Result<Tensor> {
    let native = native_variance(dims, correction, x.rank());
    let dims = axes(dims, x.rank())?;
    match dims.as_slice() {
        [dim] if native && keepdim => return x.var_keepdim(*dim),
        [dim] if native => return x.var(*dim),
        _ => {}
    }
    let count: usize = dims.iter().filter_map(|d| x.dims().get(*d)).product();
    let squares = x.broadcast_sub(&x.mean_keepdim(dims.clone())?)?.sqr()?;
    let sum = if keepdim { squares.sum_keepdim(dims)? } else { squares.sum(dims)? };
    sum / (count as f64 - correction)
}

fn extremum(
    x: &Tensor,
    dims: &[isize],
    keepdim: bool,
    all: impl Fn(&Tensor) -> Result<Tensor>,
    along: impl Fn(&Tensor, usize) -> Result<Tensor>,
) -> Result<Tensor> {
    let whole = dims.is_empty();
    let dims = axes(dims, x.rank())?;
    if whole {
        return keep(all(x)?, x, &dims, keepdim);
    }
    let y = dims.iter().try_fold(x.clone(), |y, dim| along(&y, *dim))?;
    if keepdim {
        return Ok(y);
    }
    let shape: Vec<usize> =
        x.dims().iter().enumerate().filter(|(i, _)| !dims.contains(i)).map(|(_, size)| *size).collect();
    y.reshape(shape)
}

/// Sorted values and their `I64` positions, the first `k` of them.
fn sorted(x: &Tensor, dim: usize, descending: bool, k: Option<usize>) -> Result<Vec<Tensor>> {
    let last = x.rank() - 1;
    let length = k.unwrap_or(x.dim(dim)?);
    if x.elem_count() == 0 {
        // candle would cut it into rows of length 0.
        let index = Tensor::zeros(x.shape(), DType::I64, x.device())?;
        return Ok(vec![x.narrow(dim, 0, length)?, index.narrow(dim, 0, length)?]);
    }
    let rows = x.transpose(dim, last)?.contiguous()?;
    let (values, index) = rows.sort_last_dim(!descending)?;
    let first = |t: &Tensor| t.narrow(last, 0, length)?.transpose(dim, last);
    Ok(vec![first(&values)?, first(&index.to_dtype(DType::I64)?)?])
}
