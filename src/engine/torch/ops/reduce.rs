//! Reductions, sorting and selection by size.

use tch::Tensor;

use super::{Results, dim, dims, exactly, int, misrouted, one};
use crate::program::Op;

pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    let [x] = exactly(x)?;
    one(match op {
        Op::Sum { dims: ds, keepdim: false } if ds.is_empty() => x.f_sum(None)?,
        Op::Sum { dims: ds, keepdim } => x.f_sum_dim_intlist(all_or(ds, x), *keepdim, None)?,
        Op::Mean { dims: ds, keepdim: false } if ds.is_empty() => x.f_mean(None)?,
        Op::Mean { dims: ds, keepdim } => x.f_mean_dim(all_or(ds, x), *keepdim, None)?,
        Op::Var { dims: ds, correction, keepdim } => {
            x.f_var_correction(all_or(ds, x), *correction, *keepdim)?
        }
        Op::Amax { dims: ds, keepdim } => x.f_amax(all_or(ds, x), *keepdim)?,
        Op::Amin { dims: ds, keepdim } => x.f_amin(all_or(ds, x), *keepdim)?,
        Op::Logsumexp { dims: ds, keepdim } => x.f_logsumexp(all_or(ds, x), *keepdim)?,
        Op::Argmax { dim: d, keepdim } => x.f_argmax(dim(*d), *keepdim)?,
        Op::Topk { k, dim: d, largest } => {
            let (values, indices) = x.f_topk(int(*k), dim(*d), *largest, true)?;
            return Ok(vec![values, indices]);
        }
        Op::Sort { dim: d, descending } => {
            let (values, indices) = x.f_sort_stable(true, dim(*d), *descending)?;
            return Ok(vec![values, indices]);
        }
        _ => return Err(misrouted(op)),
    })
}

/// An empty list means every dimension, which not all of libtorch's reductions take it for.
fn all_or(ds: &[isize], x: &Tensor) -> Vec<i64> {
    if ds.is_empty() { (0..int(x.dim())).collect() } else { dims(ds) }
}
