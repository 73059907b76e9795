//! Attention: the error of the scores goes through the softmax.
//!
//! A score has the error of an inner product of length e, relative to the root of the sum of
//! the squares of its terms; a probability that relative error times (1 + |score terms|), and
//! both products sum probabilities with that error.

use super::lanes::{larger, root_sum_square};
use super::spread::{Site, Spread};
use crate::program::broadcast;

/// One matrix of the batch.
struct Slice<'a> {
    site: &'a Site<'a>,
    batch: usize,
    l: usize,
    s: usize,
    e: usize,
    width: usize,
    scale: f64,
    /// Probabilities, and their magnitude of terms, `[l, s]`.
    p: Vec<f64>,
    spread: Vec<f64>,
}

fn slices<'a>(site: &'a Site<'a>, causal: bool, scale: Option<f64>) -> Vec<Slice<'a>> {
    let last = |i: usize, back: usize| site.shape(i).iter().rev().nth(back).copied().unwrap_or(1);
    let (l, e, s, width) = (last(0, 1), last(0, 0), last(1, 1), last(2, 0));
    let count = site.input(0).len() / (l * e).max(1);
    let scale = scale.unwrap_or_else(|| 1.0 / (e as f64).sqrt());
    let mask = mask_positions(site, l, s);
    (0..count)
        .map(|batch| {
            let mut slice = Slice { site, batch, l, s, e, width, scale, p: vec![], spread: vec![] };
            for i in 0..l {
                slice.row(i, causal, mask.as_deref());
            }
            slice
        })
        .collect()
}

/// Position in the mask of each score of the batch.
fn mask_positions(site: &Site<'_>, l: usize, s: usize) -> Option<Vec<usize>> {
    let mask = site.inputs.get(3)?;
    let shape: Vec<usize> = site.shape(0).iter().rev().skip(2).rev().copied().chain([l, s]).collect();
    broadcast(&mask.shape, &shape).ok()?;
    let lead = shape.len() - mask.shape.len();
    let position = |element: usize| {
        let (mut rest, mut at, mut step) = (element, 0, 1);
        for (d, size) in shape.iter().enumerate().rev() {
            let index = rest % size;
            rest /= size;
            if d >= lead {
                let own = mask.shape[d - lead];
                at += if own == 1 { 0 } else { index } * step;
                step *= own;
            }
        }
        at
    };
    Some((0..shape.iter().product()).map(position).collect())
}

impl Slice<'_> {
    fn at(&self, input: usize, row: usize, width: usize) -> &[f64] {
        let rows = if input == 0 { self.l } else { self.s };
        let start = (self.batch * rows + row) * width;
        self.site.input(input).get(start..start + width).unwrap_or_default()
    }

    fn row(&mut self, i: usize, causal: bool, mask: Option<&[usize]>) {
        let mut scores = Vec::with_capacity(self.s);
        let mut sizes = Vec::with_capacity(self.s);
        for j in 0..self.s {
            let terms = || self.at(0, i, self.e).iter().zip(self.at(1, j, self.e)).map(|(q, k)| q * k);
            let mut score = terms().sum::<f64>() * self.scale;
            let mut size = larger(score, root_sum_square(terms()) * self.scale);
            if let Some(mask) = mask {
                let at = mask.get((self.batch * self.l + i) * self.s + j).copied().unwrap_or(0);
                let added = self.site.input(3).get(at).copied().unwrap_or(0.0);
                score += added;
                size = if added.is_finite() { size.hypot(added) } else { 0.0 };
            }
            if causal && j > i {
                score = f64::NEG_INFINITY;
            }
            scores.push(score);
            sizes.push(size);
        }
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, crate::numerics::max_nan);
        let sum: f64 = scores.iter().map(|v| (v - max).exp()).sum();
        for (score, size) in scores.iter().zip(&sizes) {
            let p = if max == f64::NEG_INFINITY { 0.0 } else { (score - max).exp() / sum };
            let distance = if p == 0.0 { 0.0 } else { (score - max).abs() };
            self.p.push(p);
            self.spread.push(if p == 0.0 { 0.0 } else { p * (1.0 + size + distance) });
        }
    }

    /// Magnitude of the terms of the gradient of the scores, `[l, s]`.
    fn score_gradient(&self, g: &[f64]) -> Vec<f64> {
        let mut found = Vec::with_capacity(self.l * self.s);
        for i in 0..self.l {
            let start = (self.batch * self.l + i) * self.width;
            let g = g.get(start..start + self.width).unwrap_or_default();
            let dp: Vec<f64> = (0..self.s)
                .map(|j| root_sum_square(g.iter().zip(self.at(2, j, self.width)).map(|(g, v)| g * v)))
                .collect();
            let p = &self.p[i * self.s..(i + 1) * self.s];
            let row = root_sum_square(p.iter().zip(&dp).map(|(p, dp)| p * dp));
            for (j, dp) in dp.iter().enumerate() {
                found.push(self.spread[i * self.s + j] * dp.hypot(row));
            }
        }
        found
    }
}

/// Root of the sum of squares of products over `inner`, `[rows, columns]`.
fn product(
    rows: usize,
    columns: usize,
    inner: usize,
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
    into: &mut Vec<f64>,
) {
    for i in 0..rows {
        for j in 0..columns {
            into.push(root_sum_square((0..inner).map(|k| a(i, k) * b(k, j))));
        }
    }
}

pub(super) fn forward(site: &Site<'_>, causal: bool, scale: Option<f64>) -> Spread {
    let mut terms = Vec::new();
    for slice in slices(site, causal, scale) {
        let v = |k: usize, j: usize| slice.at(2, k, slice.width).get(j).copied().unwrap_or(0.0);
        product(slice.l, slice.width, slice.s, |i, k| slice.spread[i * slice.s + k], v, &mut terms);
    }
    Spread::terms(terms)
}

pub(super) fn backward(site: &Site<'_>, index: usize, causal: bool, scale: Option<f64>) -> Spread {
    let g = site.cotangent();
    let mut terms = Vec::new();
    for slice in slices(site, causal, scale) {
        let Slice { l, s, e, width, .. } = slice;
        let of = |input: usize, row: usize, column: usize, width: usize| {
            slice.at(input, row, width).get(column).copied().unwrap_or(0.0) * slice.scale
        };
        match index {
            0 => {
                let ds = slice.score_gradient(g);
                product(l, e, s, |i, k| ds[i * s + k], |k, j| of(1, k, j, e), &mut terms);
            }
            1 => {
                let ds = slice.score_gradient(g);
                product(s, e, l, |i, k| ds[k * s + i], |k, j| of(0, k, j, e), &mut terms);
            }
            2 => {
                let g = |k: usize, j: usize| g.get((slice.batch * l + k) * width + j).copied().unwrap_or(0.0);
                product(s, width, l, |i, k| slice.spread[k * s + i], g, &mut terms);
            }
            _ => terms.extend(slice.score_gradient(g)),
        }
    }
    if index == 3 {
        // Of a broadcast mask: everything that shares an element.
        let last = |i: usize, back: usize| site.shape(i).iter().rev().nth(back).copied().unwrap_or(1);
        let mut squares = vec![0.0; site.input(3).len()];
        for (at, term) in
            mask_positions(site, last(0, 1), last(1, 1)).unwrap_or_default().into_iter().zip(&terms)
        {
            if let Some(slot) = squares.get_mut(at) {
                *slot += term * term;
            }
        }
        terms = squares.into_iter().map(f64::sqrt).collect();
    }
    Spread::terms(terms)
}
