//! Gathering, scattering and selection by mask.

use tch::Tensor;

use super::pointwise::mask;
use super::{Results, dim, exactly, misrouted, one};
use crate::program::Op;

pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    one(match op {
        Op::Embedding {} => {
            let [table, index] = exactly(x)?;
            Tensor::f_embedding(table, index, -1, false, false)?
        }
        Op::IndexSelect { dim: d } => {
            let [input, index] = exactly(x)?;
            input.f_index_select(dim(*d), index)?
        }
        Op::Gather { dim: d } => {
            let [input, index] = exactly(x)?;
            input.f_gather(dim(*d), index, false)?
        }
        Op::ScatterAdd { dim: d } => {
            let [input, index, source] = exactly(x)?;
            input.f_scatter_add(dim(*d), index, source)?
        }
        Op::IndexPut { accumulate } => {
            let [input, index, values] = exactly(x)?;
            input.f_index_put(&[Some(index)], values, *accumulate)?
        }
        Op::Where {} => {
            let [condition, a, b] = exactly(x)?;
            a.f_where_self(&mask(condition)?, b)?
        }
        Op::MaskedFill { value } => {
            let [input, selected] = exactly(x)?;
            input.f_masked_fill(&mask(selected)?, *value)?
        }
        _ => return Err(misrouted(op)),
    })
}
