//! Gathering and scattering. Indices outside their dimension are errors, as in `ATen`;
//! `index_put` alone counts negative ones from the end.

use ndarray::{ArrayD, Axis, IxDyn};

use super::axis;
use crate::engine::reference::applied::{Applied, Arguments, Cotangent, Fault, Site};
use crate::engine::reference::elementwise::{map, reshaped, slice};
use crate::engine::reference::tensor::{Floats, Ints};
use crate::program::normalize_dim;

/// An index inside `0..size`.
fn checked(index: i64, size: usize) -> Result<usize, Fault> {
    usize::try_from(index)
        .ok()
        .filter(|i| *i < size)
        .ok_or_else(|| format!("index {index} is outside 0..{size}; correct the indices of the batch"))
}

fn all_checked(indices: &Ints, size: usize) -> Result<Vec<usize>, Fault> {
    indices.iter().map(|i| checked(*i, size)).collect()
}

/// Rows of a table.
pub(super) fn embedding(x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let (table, indices) = (x.float(0)?, x.integer(1)?);
    let rows = all_checked(indices, table.shape()[0])?;
    let y = table.select(Axis(0), &rows).into_shared();
    let shape = table.shape().to_vec();
    Ok(Applied::one(reshaped(&y, site.shape()), move |g, want| {
        let add = || {
            let g = reshaped(g, &[rows.len(), shape[1]]);
            added_with_terms(&shape, 0, &rows, &g, want.terms)
        };
        vec![want.then(0, add), None]
    }))
}

/// Slices along `dim`.
pub(super) fn index_select(x: Arguments<'_>, dim: isize) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let dim = axis(dim, input.ndim())?;
    let indices = all_checked(x.integer(1)?, input.shape()[dim])?;
    let y = input.select(Axis(dim), &indices);
    let shape = input.shape().to_vec();
    Ok(Applied::one(y, move |g, want| {
        vec![want.then(0, || added_with_terms(&shape, dim, &indices, g, want.terms)), None]
    }))
}

/// Zeros of `shape` with slices of `g` added at `indices` along `dim`, in order.
fn added(shape: &[usize], dim: usize, indices: &[usize], g: &Floats) -> ArrayD<f64> {
    let mut y = ArrayD::zeros(IxDyn(shape));
    for (from, to) in indices.iter().enumerate() {
        let mut target = y.index_axis_mut(Axis(dim), *to);
        target += &g.index_axis(Axis(dim), from);
    }
    y
}

/// The same with the magnitude of the terms.
fn added_with_terms(shape: &[usize], dim: usize, indices: &[usize], g: &Floats, terms: bool) -> Cotangent {
    let terms = terms.then(|| {
        let squares = map(g, |g| g * g).into_shared();
        added(shape, dim, indices, &squares).mapv_into(f64::sqrt).into_shared()
    });
    Cotangent::of(added(shape, dim, indices, g), terms)
}

/// For every element of `index` its own position and the position in x that it names.
fn named(index: &Ints, dim: usize, shape: &[usize]) -> Result<Vec<(IxDyn, IxDyn)>, Fault> {
    index
        .indexed_iter()
        .map(|(place, i)| {
            let mut source = place.clone();
            source[dim] = checked(*i, shape[dim])?;
            Ok((place, source))
        })
        .collect()
}

/// `y[i][j] = x[index[i][j]][j]` (for `dim` 0).
pub(super) fn gather(x: Arguments<'_>, dim: isize) -> Result<Applied, Fault> {
    let input = x.float(0)?;
    let dim = axis(dim, input.ndim())?;
    let index = x.integer(1)?;
    let pairs = named(index, dim, input.shape())?;
    let mut y = ArrayD::zeros(index.raw_dim());
    for (place, source) in &pairs {
        y[place] = input[source];
    }
    let shape = input.shape().to_vec();
    Ok(Applied::one(y, move |g, want| {
        let scatter = || {
            let mut dx = ArrayD::zeros(IxDyn(&shape));
            for (place, source) in &pairs {
                dx[source] += g[place];
            }
            let terms = want.terms.then(|| {
                let mut squares = ArrayD::<f64>::zeros(IxDyn(&shape));
                for (place, source) in &pairs {
                    squares[source] += g[place] * g[place];
                }
                squares.mapv_into(f64::sqrt).into_shared()
            });
            Cotangent::of(dx, terms)
        };
        vec![want.then(0, scatter), None]
    }))
}

/// `y = x; y[index[i][j]][j] += source[i][j]` (for `dim` 0).
pub(super) fn scatter_add(x: Arguments<'_>, dim: isize, site: &Site<'_>) -> Result<Applied, Fault> {
    let (input, source) = (x.float(0)?, x.float(2)?);
    let dim = axis(dim, input.ndim())?;
    let pairs = named(x.integer(1)?, dim, input.shape())?;
    let mut y = input.to_owned();
    for (place, target) in &pairs {
        y[target] += source[place];
    }
    let terms = site.terms.then(|| {
        let mut squares = input.mapv(|v| v * v);
        for (place, target) in &pairs {
            squares[target] += source[place] * source[place];
        }
        squares.mapv_into(f64::sqrt).into_shared()
    });
    let shape = source.shape().to_vec();
    Ok(Applied::one(Cotangent::of(y, terms), move |g, want| {
        let gather = || {
            let mut ds = ArrayD::zeros(IxDyn(&shape));
            for (place, target) in &pairs {
                ds[place] = g[target];
            }
            ds
        };
        vec![want.then(0, || g.clone()), None, want.then(2, gather)]
    }))
}

/// `y = x; y[index] = values` (or `+=`). Where an index repeats without accumulation the
/// last value stays, and every repetition gets the gradient, as in `ATen`.
pub(super) fn index_put(x: Arguments<'_>, accumulate: bool) -> Result<Applied, Fault> {
    let (input, values) = (x.float(0)?, x.float(2)?);
    let size = input.shape()[0];
    let from_end = |i: &i64| {
        isize::try_from(*i)
            .ok()
            .and_then(|i| normalize_dim(i, size).ok())
            .ok_or_else(|| format!("index {i} is outside {size} rows; correct the indices of the batch"))
    };
    let rows: Vec<usize> = x.integer(1)?.iter().map(from_end).collect::<Result<_, _>>()?;
    let mut y = input.to_owned();
    for (i, row) in rows.iter().enumerate() {
        let mut target = y.index_axis_mut(Axis(0), *row);
        if accumulate {
            target += &values.index_axis(Axis(0), i);
        } else {
            target.assign(&values.index_axis(Axis(0), i));
        }
    }
    Ok(Applied::one(y, move |g, want| {
        let through = || {
            let mut g = g.to_owned();
            if !accumulate {
                for row in &rows {
                    g.index_axis_mut(Axis(0), *row).fill(0.0);
                }
            }
            g
        };
        vec![want.then(0, through), None, want.then(2, || g.select(Axis(0), &rows))]
    }))
}

/// Target classes: `None` where ignored.
pub(super) fn classes(target: &Ints, ignore: i64, count: usize) -> Result<Vec<Option<usize>>, Fault> {
    let target = crate::engine::reference::elementwise::contiguous(target);
    slice(&target)
        .iter()
        .map(|t| if *t == ignore { Ok(None) } else { checked(*t, count).map(Some) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_outside_its_dimension_is_an_error() {
        assert!(checked(-1, 3).is_err() && checked(3, 3).is_err() && checked(2, 3).is_ok());
    }
}
