//! Operators that move elements and compute nothing. Permutations, slices, selections and
//! reversals share their input's storage; they also take integers.

use ndarray::{ArcArray, ArrayD, Axis, IxDyn, Slice};

use super::axis;
use crate::engine::reference::applied::{Applied, Cotangent, Fault, Site, Vjp};
use crate::engine::reference::elementwise::{reshaped, stretch};
use crate::engine::reference::sum::{sum_over, unbroadcast};
use crate::engine::reference::tensor::{Data, Floats};
use crate::program::{Op, slice_bounds};

type Shared<A> = ArcArray<A, IxDyn>;

/// Applies a shape operator to floats (with gradient) or integers.
pub(super) fn shape(op: &Op, inputs: &[Data], site: &Site<'_>) -> Result<Applied, Fault> {
    let mut floats = Vec::new();
    let mut integers = Vec::new();
    for input in inputs {
        match input {
            Data::Float(values) => floats.push(values.clone()),
            Data::Integer(values) => integers.push(values.clone()),
        }
    }
    if floats.is_empty() {
        let results = forward(op, &integers, site, integer_fill(op))?;
        return Ok(Applied::many(results.into_iter().map(Data::Integer).collect(), None));
    }
    if !integers.is_empty() {
        return Err("takes floats or integers, not both".to_owned());
    }
    let fill = if let Op::Pad { value, .. } = op { *value } else { 0.0 };
    let results = forward(op, &floats, site, fill)?;
    let shapes: Vec<Vec<usize>> = floats.iter().map(|x| x.shape().to_vec()).collect();
    let op = op.clone();
    let vjp: Vjp = Box::new(move |cotangents, _, want| {
        if let Op::Split { .. } = &op {
            return vec![want.then(0, || joined(&op, cotangents, &shapes[0]))];
        }
        let Some(Some(g)) = cotangents.first() else { return Vec::new() };
        (0..shapes.len()).map(|i| want.then(i, || backward(&op, g, &shapes, i, want.terms))).collect()
    });
    Ok(Applied::many(results.into_iter().map(Data::Float).collect(), Some(vjp)))
}

#[expect(clippy::cast_possible_truncation, reason = "integer padding values are whole numbers")]
fn integer_fill(op: &Op) -> i64 {
    if let Op::Pad { value, .. } = op { *value as i64 } else { 0 }
}

fn forward<A: Clone>(op: &Op, x: &[Shared<A>], site: &Site<'_>, fill: A) -> Result<Vec<Shared<A>>, Fault> {
    let first = x.first().ok_or("takes at least one input")?;
    let rank = first.ndim();
    let mut y = first.clone();
    match op {
        Op::Reshape { .. } => y = reshaped(first, site.shape()),
        Op::Permute { dims } => {
            let order = dims.iter().map(|d| axis(*d, rank)).collect::<Result<Vec<_>, _>>()?;
            y = y.permuted_axes(IxDyn(&order));
        }
        Op::Expand { .. } => y = stretch(first, site.shape()).to_shared(),
        Op::Slice { dim, start, end, step } => {
            let dim = axis(*dim, rank)?;
            let (start, end) = slice_bounds(*start, *end, first.shape()[dim]);
            y.slice_axis_inplace(Axis(dim), stepped(start, end, *step));
        }
        Op::Select { dim, index } => {
            let dim = axis(*dim, rank)?;
            y = y.index_axis_move(Axis(dim), axis(*index, first.shape()[dim])?);
        }
        Op::Cat { dim } => {
            let views: Vec<_> = x.iter().map(|x| x.view()).collect();
            let joined = ndarray::concatenate(Axis(axis(*dim, rank)?), &views);
            y = joined.map_err(|e| e.to_string())?.into_shared();
        }
        Op::Stack { dim } => {
            let views: Vec<_> = x.iter().map(|x| x.view()).collect();
            let stacked = ndarray::stack(Axis(axis(*dim, rank + 1)?), &views);
            y = stacked.map_err(|e| e.to_string())?.into_shared();
        }
        Op::Split { split_size, dim } => {
            let dim = axis(*dim, rank)?;
            let size = first.shape()[dim];
            return Ok((0..size)
                .step_by(*split_size)
                .map(|start| {
                    let mut piece = first.clone();
                    piece.slice_axis_inplace(Axis(dim), stepped(start, size.min(start + split_size), 1));
                    piece
                })
                .collect());
        }
        Op::Pad { pad, .. } => y = padded(first, pad, fill).into_shared(),
        Op::Roll { shifts, dims } => {
            for (shift, dim) in shifts.iter().zip(dims) {
                y = rolled(&y, *shift, axis(*dim, rank)?)?;
            }
        }
        Op::Flip { dims } => {
            for dim in dims {
                y.invert_axis(Axis(axis(*dim, rank)?));
            }
        }
        Op::RepeatInterleave { repeats, dim } => {
            let dim = axis(*dim, rank)?;
            let indices: Vec<usize> =
                (0..first.shape()[dim]).flat_map(|i| std::iter::repeat_n(i, *repeats)).collect();
            y = first.select(Axis(dim), &indices).into_shared();
        }
        _ => return Err("is not a shape operator".to_owned()),
    }
    Ok(vec![y])
}

/// Cotangent of input `index`. Dimensions were checked by the forward computation.
fn backward(op: &Op, g: &Floats, shapes: &[Vec<usize>], index: usize, terms: bool) -> Cotangent {
    let shape = &shapes[index];
    let at = |dim: isize, rank: usize| axis(dim, rank).unwrap_or(0);
    let mut g = g.clone();
    match op {
        Op::Reshape { .. } => reshaped(&g, shape).into(),
        Op::Permute { dims } => {
            let mut inverse = vec![0; dims.len()];
            for (to, from) in dims.iter().enumerate() {
                inverse[at(*from, dims.len())] = to;
            }
            g.permuted_axes(IxDyn(&inverse)).into()
        }
        Op::Expand { .. } => unbroadcast(g, shape, terms),
        Op::Slice { dim, start, end, step } => {
            let dim = at(*dim, shape.len());
            let (start, end) = slice_bounds(*start, *end, shape[dim]);
            placed(&g, shape, dim, stepped(start, end, *step)).into()
        }
        Op::Select { dim, index } => {
            let dim = at(*dim, shape.len());
            let index = at(*index, shape[dim]);
            let g = g.insert_axis(Axis(dim));
            placed(&g, shape, dim, stepped(index, index + 1, 1)).into()
        }
        Op::Cat { dim } => {
            let dim = at(*dim, shape.len());
            let start: usize = shapes[..index].iter().map(|s| s[dim]).sum();
            g.slice_axis_inplace(Axis(dim), stepped(start, start + shape[dim], 1));
            g.into()
        }
        Op::Stack { dim } => g.index_axis_move(Axis(at(*dim, shape.len() + 1)), index).into(),
        Op::Pad { pad, .. } => {
            let opposite: Vec<isize> = pad.iter().map(|p| -p).collect();
            padded(&g, &opposite, 0.0).into()
        }
        Op::Roll { shifts, dims } => {
            for (shift, dim) in shifts.iter().zip(dims) {
                g = rolled(&g, -shift, at(*dim, shape.len())).unwrap_or(g);
            }
            g.into()
        }
        Op::Flip { dims } => {
            for dim in dims {
                g.invert_axis(Axis(at(*dim, shape.len())));
            }
            g.into()
        }
        Op::RepeatInterleave { repeats, dim } => {
            let dim = at(*dim, shape.len());
            let mut grouped = shape.clone();
            grouped.insert(dim + 1, *repeats);
            sum_over(&reshaped(&g, &grouped), &[dim + 1]).into()
        }
        _ => g.into(),
    }
}

/// Cotangent of a split tensor: pieces without one count as zero.
fn joined(op: &Op, pieces: &[Option<Floats>], shape: &[usize]) -> ArrayD<f64> {
    let mut whole = ArrayD::zeros(IxDyn(shape));
    if let Op::Split { split_size, dim } = op {
        let dim = axis(*dim, shape.len()).unwrap_or(0);
        for (i, piece) in pieces.iter().enumerate() {
            let start = i * split_size;
            if let Some(piece) = piece {
                let end = shape[dim].min(start + split_size);
                whole.slice_axis_mut(Axis(dim), stepped(start, end, 1)).assign(piece);
            }
        }
    }
    whole
}

/// Zeros of `shape` with `g` at the given positions along `dim`.
fn placed(g: &Floats, shape: &[usize], dim: usize, positions: Slice) -> ArrayD<f64> {
    let mut whole = ArrayD::zeros(IxDyn(shape));
    whole.slice_axis_mut(Axis(dim), positions).assign(g);
    whole
}

fn stepped(start: usize, end: usize, step: usize) -> Slice {
    let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
    // An empty range that starts at the end is written 0..0: a slice must start inside.
    if start >= end {
        return Slice::new(0, Some(0), 1);
    }
    Slice::new(signed(start), Some(signed(end)), signed(step))
}

/// Pads (or, where negative, crops) pairs from the last dimension backwards.
fn padded<A: Clone>(x: &Shared<A>, pad: &[isize], fill: A) -> ArrayD<A> {
    let rank = x.ndim();
    let mut inner = x.clone();
    let mut shape = x.shape().to_vec();
    let mut place: Vec<(usize, usize)> = shape.iter().map(|size| (0, *size)).collect();
    for (i, pair) in pad.chunks_exact(2).enumerate() {
        let dim = rank - 1 - i;
        let size = shape[dim];
        let (before, after) = (pair[0], pair[1]);
        // What remains of the input, then where it goes.
        let from = before.min(0).unsigned_abs().min(size);
        let to = size.saturating_sub(after.min(0).unsigned_abs()).max(from);
        inner.slice_axis_inplace(Axis(dim), stepped(from, to, 1));
        shape[dim] = size.saturating_add_signed(before).saturating_add_signed(after);
        let start = before.max(0).unsigned_abs();
        place[dim] = (start, start + (to - from));
    }
    let mut y = ArrayD::from_elem(IxDyn(&shape), fill);
    let mut target = y.view_mut();
    for (dim, (start, end)) in place.into_iter().enumerate() {
        target.slice_axis_inplace(Axis(dim), stepped(start, end, 1));
    }
    target.assign(&inner);
    y
}

/// Cyclic shift towards larger indices.
fn rolled<A: Clone>(x: &Shared<A>, shift: isize, dim: usize) -> Result<Shared<A>, Fault> {
    let size = isize::try_from(x.shape()[dim]).map_err(|e| e.to_string())?;
    if size == 0 || shift.rem_euclid(size) == 0 {
        return Ok(x.clone());
    }
    let split = usize::try_from(size - shift.rem_euclid(size)).map_err(|e| e.to_string())?;
    let (head, tail) = x.view().split_at(Axis(dim), split);
    Ok(ndarray::concatenate(Axis(dim), &[tail, head]).map_err(|e| e.to_string())?.into_shared())
}
