//! Operators that move elements and compute nothing.

use candle_core::{Result, Tensor};

use super::situation::{Situation, arg, axes, axis, constant, indices, not_mine};
use crate::engine::Support;
use crate::program::{Op, infer};

pub(super) fn supports(op: &Op, _s: &Situation<'_>) -> Support {
    match op {
        Op::Slice { step, .. } if *step != 1 => Support::Decomposed("index_select"),
        Op::RepeatInterleave { .. } => Support::Decomposed("unsqueeze + expand + reshape"),
        Op::Pad { pad, value } if *value != 0.0 && pad.iter().any(|p| *p > 0) => {
            Support::Decomposed("cat with constants")
        }
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let a = arg(x, 0)?;
    let rank = a.rank();
    let y = match op {
        Op::Reshape { .. } => a.reshape(s.output(op)?),
        Op::Permute { dims } if dims.is_empty() => Ok(a.clone()),
        Op::Permute { dims } => a.permute(axes(dims, rank)?),
        Op::Expand { .. } => a.expand(s.output(op)?),
        Op::Slice { dim, start, end, step } => slice(a, axis(*dim, rank)?, *start, *end, *step),
        Op::Select { dim, index } => {
            let dim = axis(*dim, rank)?;
            a.get_on_dim(dim, axis(*index, a.dim(dim)?)?)
        }
        Op::Cat { dim } => Tensor::cat(x, axis(*dim, rank)?),
        Op::Stack { dim } => Tensor::stack(x, axis(*dim, rank + 1)?),
        Op::Split { split_size, dim } => return split(op, s, a, *split_size, axis(*dim, rank)?),
        Op::Pad { pad, value } => constant_pad(a, pad, *value),
        Op::Roll { shifts, dims } => roll(a, shifts, dims),
        Op::Flip { dims } if dims.is_empty() => Ok(a.clone()),
        Op::Flip { dims } => a.flip(&axes(dims, rank)?),
        Op::RepeatInterleave { repeats, dim } => repeat_interleave(op, s, a, *repeats, axis(*dim, rank)?),
        _ => not_mine(op),
    };
    Ok(vec![y?])
}

fn slice(x: &Tensor, dim: usize, start: isize, end: isize, step: usize) -> Result<Tensor> {
    let size = x.dim(dim)?;
    let (start, end) = bounds(start, end, size);
    if step == 1 {
        return x.narrow(dim, start, end - start);
    }
    x.index_select(&indices((start..end).step_by(step), x)?, dim)
}

/// `start..end` clamped into `0..=size`, as Python slices are.
fn bounds(start: isize, end: isize, size: usize) -> (usize, usize) {
    let signed = isize::try_from(size).unwrap_or(isize::MAX);
    let clamp = |bound: isize| {
        let bound = if bound < 0 { bound.saturating_add(signed) } else { bound };
        usize::try_from(bound.clamp(0, signed)).unwrap_or(0)
    };
    let (start, end) = (clamp(start), clamp(end));
    (start, end.max(start))
}

/// candle's `chunk` counts pieces, `ATen`'s `split` counts elements: `narrow` serves both.
fn split(op: &Op, s: &Situation<'_>, x: &Tensor, size: usize, dim: usize) -> Result<Vec<Tensor>> {
    let pieces = infer(op, s.types).map_err(candle_core::Error::wrap)?.len();
    let whole = x.dim(dim)?;
    (0..pieces)
        .map(|i| {
            let start = i * size;
            x.narrow(dim, start, size.min(whole.saturating_sub(start)))
        })
        .collect()
}

/// Pads `before` and `after` along `dim`.
pub(super) fn surround(x: &Tensor, dim: usize, before: usize, after: usize, value: f64) -> Result<Tensor> {
    if value == 0.0 {
        return x.pad_with_zeros(dim, before, after);
    }
    let block = |length: usize| {
        let mut shape = x.dims().to_vec();
        if let Some(size) = shape.get_mut(dim) {
            *size = length;
        }
        constant(value, &shape, x)
    };
    let (left, right) = (block(before)?, block(after)?);
    match (before, after) {
        (0, 0) => Ok(x.clone()),
        (0, _) => Tensor::cat(&[x, &right], dim),
        (_, 0) => Tensor::cat(&[&left, x], dim),
        _ => Tensor::cat(&[&left, x, &right], dim),
    }
}

fn constant_pad(x: &Tensor, pad: &[isize], value: f64) -> Result<Tensor> {
    let mut y = x.clone();
    for (i, pair) in pad.as_chunks::<2>().0.iter().enumerate() {
        let dim = axis(-1 - isize::try_from(i).unwrap_or(isize::MAX - 1), x.rank())?;
        let [before, after] = *pair;
        let (cut_before, cut_after) = (before.min(0).unsigned_abs(), after.min(0).unsigned_abs());
        let size = y.dim(dim)?;
        // Cutting may go beyond the input into what the other side adds: pad first.
        y = surround(&y, dim, before.max(0).unsigned_abs(), after.max(0).unsigned_abs(), value)?;
        let length = (size + before.max(0).unsigned_abs() + after.max(0).unsigned_abs())
            .saturating_sub(cut_before + cut_after);
        y = y.narrow(dim, cut_before, length)?;
    }
    Ok(y)
}

fn roll(x: &Tensor, shifts: &[isize], dims: &[isize]) -> Result<Tensor> {
    let mut y = x.clone();
    for (shift, dim) in shifts.iter().zip(dims) {
        let dim = axis(*dim, x.rank())?;
        // candle takes an i32 and divides by the size, which must not be 0.
        let Some(size) = isize::try_from(x.dim(dim)?).ok().filter(|size| *size > 0) else { continue };
        let shift = i32::try_from(shift.rem_euclid(size)).map_err(candle_core::Error::wrap)?;
        y = y.roll(shift, dim)?;
    }
    Ok(y)
}

fn repeat_interleave(op: &Op, s: &Situation<'_>, x: &Tensor, repeats: usize, dim: usize) -> Result<Tensor> {
    let mut shape = x.dims().to_vec();
    shape.insert(dim + 1, repeats);
    x.unsqueeze(dim + 1)?.expand(shape)?.reshape(s.output(op)?)
}
