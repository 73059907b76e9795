//! Resizing of the last two dimensions: each output element is a weighted sum of at most
//! two source rows and two source columns.

use rayon::prelude::*;

use crate::engine::reference::applied::{Applied, Arguments, Fault, Site};
use crate::engine::reference::elementwise::{contiguous, from_vec, slice};
use crate::numerics::max_nan;
use crate::program::Op;

/// Source of one output position along one axis: two indices, and the weight of the second.
#[derive(Clone, Copy, Debug)]
struct Source {
    low: usize,
    high: usize,
    weight: f64,
}

impl Source {
    fn taps(self) -> [(usize, f64); 2] {
        [(self.low, 1.0 - self.weight), (self.high, self.weight)]
    }
}

/// `upsample_nearest2d` and `upsample_bilinear2d`.
pub(super) fn upsample(op: &Op, x: Arguments<'_>, site: &Site<'_>) -> Result<Applied, Fault> {
    let input = contiguous(x.float(0)?);
    let shape = input.shape().to_vec();
    let target = site.shape();
    let [rows, columns] = [2, 3].map(|axis| sources(op, shape[axis], target[axis]));
    let (from, to) = (shape[2] * shape[3], target[2] * target[3]);
    let width = shape[3];
    let mut y = vec![0.0; target.iter().product()];
    y.par_chunks_mut(to.max(1)).zip(slice(&input).par_chunks(from.max(1))).for_each(|(y, x)| {
        let places = rows.iter().flat_map(|r| columns.iter().map(move |c| (r, c)));
        for (y, (r, c)) in y.iter_mut().zip(places) {
            *y = weighted_taps(*r, *c).map(|(row, column, w)| x[row * width + column] * w).sum();
        }
    });
    Ok(Applied::one(from_vec(target, y), move |g, want| {
        vec![want.then(0, || {
            let g = contiguous(g);
            let mut x = vec![0.0; shape.iter().product()];
            x.par_chunks_mut(from.max(1)).zip(slice(&g).par_chunks(to.max(1))).for_each(|(x, g)| {
                let places = rows.iter().flat_map(|r| columns.iter().map(move |c| (r, c)));
                for (g, (r, c)) in g.iter().zip(places) {
                    weighted_taps(*r, *c).for_each(|(row, column, w)| x[row * width + column] += g * w);
                }
            });
            from_vec(&shape, x)
        })]
    }))
}

/// Elements with a weight; those of weight 0 are not read, so that their NaN stays away.
fn weighted_taps(row: Source, column: Source) -> impl Iterator<Item = (usize, usize, f64)> {
    let pairs = row.taps().into_iter().flat_map(move |r| column.taps().into_iter().map(move |c| (r, c)));
    pairs.map(|((r, a), (c, b))| (r, c, a * b)).filter(|(_, _, w)| *w != 0.0)
}

fn sources(op: &Op, size: usize, count: usize) -> Vec<Source> {
    let source = |at: usize| {
        if let Op::UpsampleBilinear2d { align_corners, .. } = op {
            let position = match (*align_corners, count) {
                (true, 0 | 1) => 0.0,
                (true, _) => at as f64 * ((size - 1) as f64 / (count - 1) as f64),
                (false, _) => max_nan((at as f64 + 0.5) * (size as f64 / count as f64) - 0.5, 0.0),
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "floor of a position"
            )]
            let low = (position as usize).min(size - 1);
            Source { low, high: (low + 1).min(size - 1), weight: position - low as f64 }
        } else {
            let low = at * size / count;
            Source { low, high: low, weight: 0.0 }
        }
    };
    (0..count).map(source).collect()
}
