//! Gathering, scattering and selection by mask.

use candle_core::{Result, Tensor};
use candle_nn::Module;

use super::situation::{Situation, arg, axis, constant, indices, not_mine};
use crate::engine::Support;
use crate::program::Op;

pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    match op {
        Op::Gather { dim } if s.training() && !fills(s.shape(0), s.shape(1), *dim) => {
            Support::Decomposed("narrow + gather")
        }
        Op::ScatterAdd { dim } if !native_scatter_add(s, *dim) => Support::Decomposed("flatten + index_add"),
        Op::IndexPut { accumulate: false } => Support::Decomposed("scatter with an expanded index"),
        Op::MaskedFill { .. } => Support::Decomposed("where_cond with a constant"),
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let a = arg(x, 0)?;
    let rank = a.rank();
    let y = match op {
        Op::Embedding {} => candle_nn::Embedding::new(a.clone(), a.dim(1)?).forward(arg(x, 1)?),
        Op::IndexSelect { dim } => a.contiguous()?.index_select(&arg(x, 1)?.contiguous()?, axis(*dim, rank)?),
        Op::Gather { dim } => {
            let (dim, index) = (axis(*dim, rank)?, arg(x, 1)?.contiguous()?);
            let table = if s.training() { covered(a, &index, Some(dim))? } else { a.clone() };
            table.contiguous()?.gather(&index, dim)
        }
        Op::ScatterAdd { dim } => {
            let index = arg(x, 1)?.contiguous()?;
            let (native, dim) = (native_scatter_add(s, *dim), axis(*dim, rank)?);
            if native {
                a.scatter_add(&index, &arg(x, 2)?.contiguous()?, dim)
            } else {
                flat_scatter_add(a, &index, &covered(arg(x, 2)?, &index, None)?, dim)
            }
        }
        Op::IndexPut { accumulate: true } => {
            a.contiguous()?.index_add(&arg(x, 1)?.contiguous()?, &arg(x, 2)?.contiguous()?, 0)
        }
        Op::IndexPut { accumulate: false } => {
            let values = arg(x, 2)?.contiguous()?;
            let mut column = vec![1; rank];
            if let Some(first) = column.first_mut() {
                *first = values.dim(0)?;
            }
            let index = arg(x, 1)?.reshape(column)?.broadcast_as(values.shape())?.contiguous()?;
            a.scatter(&index, &values, 0)
        }
        Op::Where {} => {
            let shape = s.output(op)?;
            let wide = |i: usize| arg(x, i)?.broadcast_as(shape.as_slice());
            wide(0)?.where_cond(&wide(1)?, &wide(2)?)
        }
        Op::MaskedFill { value } => {
            let mask = arg(x, 1)?.broadcast_as(a.shape())?;
            mask.where_cond(&constant(*value, &[], a)?.broadcast_as(a.shape())?, a)
        }
        _ => not_mine(op),
    };
    Ok(vec![y?])
}

/// Whether an index has the size of the target in every dimension but `dim`: candle's
/// backward of `gather` and its `scatter_add` need that.
fn fills(target: &[usize], index: &[usize], dim: isize) -> bool {
    let Ok(dim) = axis(dim, target.len()) else { return true };
    target.iter().zip(index).enumerate().all(|(d, (target, index))| d == dim || target == index)
}

/// candle's backward of `scatter_add` needs an index as large as the target in `dim` too.
fn native_scatter_add(s: &Situation<'_>, dim: isize) -> bool {
    let (target, index, source) = (s.shape(0), s.shape(1), s.shape(2));
    index == source && fills(target, index, dim) && (!s.training() || target == index)
}

/// The part of `x` that an index reaches, in every dimension but `except`.
fn covered(x: &Tensor, index: &Tensor, except: Option<usize>) -> Result<Tensor> {
    let mut part = x.clone();
    for (d, size) in index.dims().iter().enumerate().filter(|(d, _)| Some(*d) != except) {
        part = part.narrow(d, 0, *size)?;
    }
    Ok(part)
}

/// `scatter_add` as one `index_add` into the flattened target.
fn flat_scatter_add(x: &Tensor, index: &Tensor, source: &Tensor, dim: usize) -> Result<Tensor> {
    let mut stride = vec![1; x.rank()];
    for d in (0..x.rank().saturating_sub(1)).rev() {
        let below = stride.get(d + 1).copied().unwrap_or(1) * x.dim(d + 1)?;
        if let Some(slot) = stride.get_mut(d) {
            *slot = below;
        }
    }
    // Offset of each element of the index in the flattened target, without `dim`.
    let mut offsets = vec![0];
    for (d, (size, stride)) in index.dims().iter().zip(&stride).enumerate() {
        let stride = if d == dim { 0 } else { *stride };
        offsets = offsets.iter().flat_map(|base| (0..*size).map(move |i| base + i * stride)).collect();
    }
    let step = stride.get(dim).copied().unwrap_or(1);
    let positions = (index.flatten_all()? * step as f64)?.add(&indices(offsets.into_iter(), x)?)?;
    x.flatten_all()?.index_add(&positions, &source.flatten_all()?, 0)?.reshape(x.shape())
}
