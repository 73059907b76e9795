//! Shape: views, joins and rearrangements.

use tch::Tensor;

use super::{Results, dim, dims, exactly, int, misrouted, one};
use crate::program::Op;

pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    match op {
        Op::Cat { dim: d } => return one(Tensor::f_cat(x, dim(*d))?),
        Op::Stack { dim: d } => return one(Tensor::f_stack(x, dim(*d))?),
        _ => {}
    }
    let [x] = exactly(x)?;
    one(match op {
        Op::Reshape { shape } => x.f_reshape(dims(shape))?,
        Op::Permute { dims: ds } => x.f_permute(dims(ds))?,
        Op::Expand { shape } => x.f_expand(dims(shape), false)?,
        Op::Slice { dim: d, start, end, step } => x.f_slice(dim(*d), dim(*start), dim(*end), int(*step))?,
        Op::Select { dim: d, index } => x.f_select(dim(*d), dim(*index))?,
        Op::Split { split_size, dim: d } => return Ok(x.f_split(int(*split_size), dim(*d))?),
        Op::Pad { pad, value } => x.f_pad(dims(pad), "constant", *value)?,
        Op::Roll { shifts, dims: ds } => x.f_roll(dims(shifts), dims(ds))?,
        Op::Flip { dims: ds } => x.f_flip(dims(ds))?,
        Op::RepeatInterleave { repeats, dim: d } => {
            x.f_repeat_interleave_self_int(int(*repeats), dim(*d), None)?
        }
        _ => return Err(misrouted(op)),
    })
}
