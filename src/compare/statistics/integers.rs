//! Integers and masks: compared exactly.

use rayon::prelude::*;

use super::worst::{Entry, Worst, keep};
use super::{Agreement, Disagreement, Extremum, Log2Histogram, SideClasses, Statistics, Sums};
use crate::compare::statistics::sums::Scale;
use crate::compare::{Pair, TensorView};
use crate::numerics::DType;

const CHUNK: usize = 1 << 16;
const WAVE: usize = 64;

/// Measures a pair of integers of equal shape. Every pair is compared by value; ULP is 1,
/// so that the maximum in ULP is the maximum of |e|. Differences are taken exactly (in
/// 128 bits) before they are rounded to f64.
pub(super) fn measure(pair: &Pair<'_>) -> Statistics {
    let elements = pair.candidate.elements();
    let chunks = elements.div_ceil(CHUNK);
    let mut total = Partial::default();
    for first in (0..chunks).step_by(WAVE) {
        let end = chunks.min(first + WAVE);
        let partials: Vec<Partial> =
            (first..end).into_par_iter().map(|i| chunk(pair, i * CHUNK, elements)).collect();
        for partial in &partials {
            total.merge(partial);
        }
    }
    let n = elements as u64;
    Statistics {
        elements: n,
        candidate_dtype: pair.candidate.dtype(),
        reference_dtype: pair.reference.dtype(),
        candidate: SideClasses { finite: n, zero: total.zeros.0, ..SideClasses::default() },
        reference: SideClasses { finite: n, zero: total.zeros.1, ..SideClasses::default() },
        agreement: Agreement {
            finite: n,
            exact: total.histogram.exact,
            nonzero_at_zero: total.histogram.at_zero,
            ..Agreement::default()
        },
        disagreement: Disagreement::default(),
        max_absolute: total.max_absolute,
        max_relative: total.max_relative,
        max_ulp: total.max_absolute,
        positive: total.positive,
        negative: total.negative,
        sums: total.sums,
        histogram: total.histogram,
        worst: total.worst.into_elements(pair.candidate.shape()),
    }
}

#[derive(Clone, Debug, Default)]
struct Partial {
    zeros: (u64, u64),
    max_absolute: Option<Extremum>,
    max_relative: Option<Extremum>,
    positive: u64,
    negative: u64,
    sums: Sums,
    histogram: Log2Histogram,
    worst: Worst,
}

impl Partial {
    fn merge(&mut self, other: &Self) {
        self.zeros.0 += other.zeros.0;
        self.zeros.1 += other.zeros.1;
        for (mine, theirs) in
            [(&mut self.max_absolute, other.max_absolute), (&mut self.max_relative, other.max_relative)]
        {
            if let Some(extremum) = theirs {
                keep(mine, extremum.value, extremum.index);
            }
        }
        self.positive += other.positive;
        self.negative += other.negative;
        self.sums.merge(&other.sums);
        self.histogram.merge(&other.histogram);
        self.worst.merge(&other.worst);
    }
}

fn chunk(pair: &Pair<'_>, start: usize, elements: usize) -> Partial {
    let mut partial = Partial::default();
    for index in start..elements.min(start + CHUNK) {
        let (c, r) = (integer(&pair.candidate, index), integer(&pair.reference, index));
        partial.zeros.0 += u64::from(c == 0);
        partial.zeros.1 += u64::from(r == 0);
        let (x, y, e) = (c as f64, r as f64, (i128::from(c) - i128::from(r)) as f64);
        partial.sums.signed_error.add(e, Scale::Plain);
        partial.sums.error.add(e * e, Scale::Plain);
        partial.sums.reference.add(y * y, Scale::Plain);
        partial.sums.candidate.add(x * x, Scale::Plain);
        partial.sums.product.add(x * y, Scale::Plain);
        partial.histogram.count(e, y);
        if e != 0.0 {
            let (absolute, index) = (e.abs(), index as u64);
            partial.positive += u64::from(e > 0.0);
            partial.negative += u64::from(e < 0.0);
            keep(&mut partial.max_absolute, absolute, index);
            if r != 0 {
                keep(&mut partial.max_relative, absolute / y.abs(), index);
            }
            partial.worst.push(Entry { index, candidate: x, reference: y, absolute, mismatch: false });
        }
    }
    partial
}

fn integer(tensor: &TensorView<'_>, index: usize) -> i64 {
    match tensor.dtype() {
        DType::U8 => tensor.bytes().get(index).copied().map_or(0, i64::from),
        _ => tensor.bytes().as_chunks::<8>().0.get(index).copied().map_or(0, i64::from_le_bytes),
    }
}
