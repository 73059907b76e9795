//! Sorting and selection by size. NaN counts as the largest value, as in `ATen`; equal
//! values keep their order.

use std::cmp::Ordering;

use super::axis;
use crate::engine::reference::applied::{Applied, Arguments, Fault, Site, Vjp};
use crate::engine::reference::elementwise::{axis_back, axis_last, contiguous, from_vec, reshaped, slice};
use crate::engine::reference::tensor::{Data, Floats, Ints};

/// Total order with NaN above everything.
fn compare(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
    }
}

fn signed(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

/// Index of the first maximum along `dim`.
pub(super) fn argmax(x: Arguments<'_>, dim: isize, site: &Site<'_>) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let rows = contiguous(&axis_last(input.clone(), axis(dim, input.ndim())?));
    let n = rows.shape().last().copied().unwrap_or(1).max(1);
    let first_maximum = |row: &[f64]| {
        let better = |best: usize, i: usize| if compare(row[i], row[best]).is_gt() { i } else { best };
        signed((1..row.len()).fold(0, better))
    };
    let indices: Vec<i64> = slice(&rows).chunks(n).map(first_maximum).collect();
    let y: Ints = from_vec(&[indices.len()], indices).into_shared();
    Ok(Applied::many(vec![Data::Integer(reshaped(&y, site.shape()))], None))
}

/// Stable sort along `dim`.
pub(super) fn sort(x: Arguments<'_>, dim: isize, descending: bool) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let size = input.shape()[axis(dim, input.ndim())?];
    ordered(x, dim, size, descending)
}

/// The first `k` along `dim` in descending or ascending order: values and indices.
pub(super) fn ordered(x: Arguments<'_>, dim: isize, k: usize, descending: bool) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let dim = axis(dim, input.ndim())?;
    let rows = contiguous(&axis_last(input.clone(), dim));
    let full = rows.shape().to_vec();
    let n = full.last().copied().unwrap_or(1);
    let mut kept = full.clone();
    if let Some(last) = kept.last_mut() {
        *last = k;
    }
    let mut order = Vec::new();
    let mut values = Vec::new();
    for row in slice(&rows).chunks(n.max(1)) {
        let mut indices: Vec<usize> = (0..row.len()).collect();
        indices.sort_by(|a, b| {
            let order = compare(row[*a], row[*b]);
            if descending { order.reverse() } else { order }
        });
        indices.truncate(k);
        values.extend(indices.iter().map(|i| row[*i]));
        order.extend(indices);
    }
    let indices: Vec<i64> = order.iter().map(|i| signed(*i)).collect();
    let outputs = vec![
        Data::Float(axis_back(from_vec(&kept, values).into_shared(), dim)),
        Data::Integer(axis_back(from_vec(&kept, indices).into_shared(), dim)),
    ];
    let vjp: Vjp = Box::new(move |cotangents, _, want| {
        let Some(Some(g)) = cotangents.first() else { return Vec::new() };
        vec![want.then(0, || {
            let g = contiguous(&axis_last(g.clone(), dim));
            let mut dx = vec![0.0; full.iter().product()];
            let rows = dx.chunks_mut(n.max(1)).zip(slice(&g).chunks(k.max(1)).zip(order.chunks(k.max(1))));
            for (dx, (g, order)) in rows {
                for (g, i) in g.iter().zip(order) {
                    dx[*i] += g;
                }
            }
            let dx: Floats = from_vec(&full, dx).into_shared();
            axis_back(dx, dim)
        })]
    });
    Ok(Applied::many(outputs, Some(vjp)))
}
