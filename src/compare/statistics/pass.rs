//! The pass: blocks to chunks to the whole, in an order that threads do not change.

#![expect(clippy::inline_always, reason = "bodies are compiled once for each instruction set")]

use rayon::prelude::*;

use super::classes::{Settled, settle};
use super::histogram::{LOWEST_SLOT, SLOTS, fold_slots};
use super::kernel::{self, LANES, LaneSums, Thresholds, UlpScale};
use super::sums::Scale;
use super::widen::{BLOCK, Magnitudes, Scratch, decode, widen};
use super::worst::{Entry, Worst, keep};
use super::{Agreement, Disagreement, Extremum, Log2Histogram, SideClasses, Statistics, Sums};
use crate::compare::{Pair, TensorView};
use crate::numerics::DType;

/// Elements of a stretch: blocks whose sums and slots are gathered before they are added up.
const STRETCH: usize = 8 * BLOCK;
/// Elements of a chunk: the unit of work of a thread.
const CHUNK: usize = 32 * STRETCH;
/// Chunks of the first and of the largest wave. Maxima found in earlier waves spare later
/// ones second looks; the schedule is fixed, so that the result is, too.
const FIRST_WAVE: usize = 8;
const LARGEST_WAVE: usize = 256;
/// Beyond these magnitudes (f64 only) squares, or their sums, leave the range.
const HUGE: f64 = power_of_two(480);
const TINY: f64 = power_of_two(-400);
/// Below this, differences of f64 values may be subnormal.
const MINUSCULE: f64 = power_of_two(-900);

const fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits((1023 + exponent).cast_unsigned() << 52)
}

/// What a part of the elements contributed.
#[derive(Clone, Debug, Default)]
struct Partial {
    candidate: SideClasses,
    reference: SideClasses,
    agreement: Agreement,
    disagreement: Disagreement,
    max_absolute: Option<Extremum>,
    max_relative: Option<Extremum>,
    max_ulp: Option<Extremum>,
    positive: u64,
    negative: u64,
    sums: Sums,
    histogram: Log2Histogram,
    worst: Worst,
}

/// Facts about a pair that no block changes.
#[derive(Clone, Copy, Debug)]
struct Setting<'a> {
    candidate: TensorView<'a>,
    reference: TensorView<'a>,
    ulp: UlpScale,
    /// Magnitude from which a reference rounds to infinity in the candidate's dtype.
    overflow: f64,
    arch: pulp::Arch,
}

/// Measures a pair of floats of equal shape.
pub(super) fn measure(pair: &Pair<'_>) -> Statistics {
    let dtype = pair.candidate.dtype();
    let setting = Setting {
        candidate: pair.candidate,
        reference: pair.reference,
        ulp: UlpScale::of(dtype),
        overflow: overflow_limit(dtype),
        arch: pulp::Arch::new(),
    };
    let elements = pair.candidate.elements();
    let chunks = elements.div_ceil(CHUNK);
    let mut total = Partial::default();
    let (mut next, mut wave) = (0, FIRST_WAVE);
    while next < chunks {
        let end = chunks.min(next + wave);
        let limit = total.thresholds(setting.ulp);
        let partials: Vec<Partial> =
            (next..end).into_par_iter().map(|chunk| setting.chunk(chunk * CHUNK, limit)).collect();
        for partial in &partials {
            total.merge(partial);
        }
        (next, wave) = (end, LARGEST_WAVE.min(2 * wave));
    }
    total.finish(pair)
}

/// The smallest magnitude that rounds to infinity in `dtype`: half a step above the largest
/// finite value. Infinite for f64.
fn overflow_limit(dtype: DType) -> f64 {
    let max = dtype.max_finite();
    max + max * dtype.unit_roundoff() / (2.0 - 2.0 * dtype.unit_roundoff())
}

impl Partial {
    fn thresholds(&self, ulp: UlpScale) -> Thresholds {
        let value = |extremum: &Option<Extremum>| extremum.map_or(0.0, |e| e.value);
        let (listed, largest) = (self.worst.threshold(), value(&self.max_absolute));
        Thresholds {
            // A list full of mismatches has an infinite threshold; the maximum is still sought.
            absolute: if listed > largest { largest } else { listed },
            relative: value(&self.max_relative),
            ulp: value(&self.max_ulp) * ulp.epsilon,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.candidate.merge(&other.candidate);
        self.reference.merge(&other.reference);
        self.agreement.merge(&other.agreement);
        self.disagreement.merge(&other.disagreement);
        for (mine, theirs) in [
            (&mut self.max_absolute, other.max_absolute),
            (&mut self.max_relative, other.max_relative),
            (&mut self.max_ulp, other.max_ulp),
        ] {
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

    /// Looks at one pair of values closely: maxima and worst list.
    fn look(&mut self, c: f64, r: f64, index: u64, ulp: UlpScale) {
        let (absolute, magnitude) = ((c - r).abs(), r.abs());
        if absolute == 0.0 {
            return;
        }
        keep(&mut self.max_absolute, absolute, index);
        if magnitude > 0.0 {
            keep(&mut self.max_relative, absolute / magnitude, index);
        }
        keep(&mut self.max_ulp, absolute / (ulp.power(magnitude) * ulp.epsilon), index);
        self.worst.push(Entry { index, candidate: c, reference: r, absolute, mismatch: false });
    }

    fn finish(self, pair: &Pair<'_>) -> Statistics {
        Statistics {
            elements: pair.candidate.elements() as u64,
            candidate_dtype: pair.candidate.dtype(),
            reference_dtype: pair.reference.dtype(),
            candidate: self.candidate,
            reference: self.reference,
            agreement: self.agreement,
            disagreement: self.disagreement,
            max_absolute: self.max_absolute,
            max_relative: self.max_relative,
            max_ulp: self.max_ulp,
            positive: self.positive,
            negative: self.negative,
            sums: self.sums,
            histogram: self.histogram,
            worst: self.worst.into_elements(pair.candidate.shape()),
        }
    }
}

/// Scratch of a chunk.
struct Workspace {
    candidate: Scratch,
    reference: Scratch,
    /// Slot of each element of a stretch.
    slots: [u8; STRETCH],
    /// Elements in each slot, of the whole chunk.
    counts: [u64; SLOTS],
    lanes: LaneSums,
    /// Elements of slot 0 that are no equal pairs: padding, extreme blocks, and nonzero
    /// candidates at a zero reference.
    blank: u64,
    /// Pairs of zeros; the sweep takes their relative error for 1.
    both_zero: u64,
    /// Special pairs, which are pairs of zeros by then.
    settled: u64,
}

/// One stretch, to be compiled for each instruction set.
struct Stretch<'a, 'b> {
    setting: &'a Setting<'b>,
    at: usize,
    n: usize,
    limit: Thresholds,
    work: &'a mut Workspace,
    partial: &'a mut Partial,
}

impl pulp::WithSimd for Stretch<'_, '_> {
    type Output = ();

    // (A closure would do, but closures are not inlined where it matters.)
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Self { setting, at, n, limit, work, partial } = self;
        work.lanes = LaneSums::default();
        for start in (0..n).step_by(BLOCK) {
            setting.block(at + start, start, BLOCK.min(n - start), limit, work, partial);
        }
        work.lanes.across(&mut partial.sums);
        let padded = n.next_multiple_of(64).min(STRETCH);
        work.slots[n..padded].fill(0);
        work.blank += (padded - n) as u64;
        kernel::tally(&work.slots[..padded], &mut work.counts);
    }
}

impl Setting<'_> {
    /// Works on the elements from `start` to the end of the chunk or tensor.
    fn chunk(&self, start: usize, limit: Thresholds) -> Partial {
        let mut partial = Partial::default();
        let mut work = Workspace {
            candidate: [0.0; BLOCK],
            reference: [0.0; BLOCK],
            slots: [0; STRETCH],
            counts: [0; SLOTS],
            lanes: LaneSums::default(),
            blank: 0,
            both_zero: 0,
            settled: 0,
        };
        let end = self.candidate.elements().min(start + CHUNK);
        for at in (start..end).step_by(STRETCH) {
            let (work, partial) = (&mut work, &mut partial);
            self.arch.dispatch(Stretch { setting: self, at, n: STRETCH.min(end - at), limit, work, partial });
        }
        let exact = work.counts[0] - work.blank + work.both_zero - work.settled;
        work.counts[usize::from(LOWEST_SLOT.unsigned_abs())] -= work.both_zero;
        fold_slots(&work.counts, &mut partial.histogram);
        partial.agreement.exact += exact;
        partial.histogram.exact += exact;
        partial.positive = partial.agreement.finite - partial.agreement.exact - partial.negative;
        partial
    }

    /// Works on the `n` elements from `at`, the block at `start` of its stretch.
    #[inline(always)]
    fn block(
        &self,
        at: usize,
        start: usize,
        n: usize,
        limit: Thresholds,
        work: &mut Workspace,
        partial: &mut Partial,
    ) {
        let Workspace { candidate: c, reference: r, slots, lanes, blank, both_zero, .. } = work;
        let mut of_c = widen(self.candidate.dtype(), slice(&self.candidate, at, n), c);
        let mut of_r = widen(self.reference.dtype(), slice(&self.reference, at, n), r);
        let padded = n.next_multiple_of(LANES).min(BLOCK);
        c[n..padded].fill(0.0);
        r[n..padded].fill(0.0);
        let mut settled = 0;
        if of_c.special || of_r.special || of_r.max >= self.overflow {
            settled = self.settle(at, n, c, r, partial);
            (of_c, of_r) = (magnitudes(&c[..n]), magnitudes(&r[..n]));
        }
        let small_c = count_classes(&mut partial.candidate, self.candidate.dtype(), &c[..n], of_c, settled);
        let small_r = count_classes(&mut partial.reference, self.reference.dtype(), &r[..n], of_r, settled);
        partial.agreement.finite += n as u64 - settled;

        let slots = &mut slots[start..start + padded];
        let largest = if of_c.max > of_r.max { of_c.max } else { of_r.max };
        if largest >= HUGE || (largest > 0.0 && largest < TINY) || small_c.minuscule || small_r.minuscule {
            slots.fill(0);
            *blank += n as u64;
            self.extreme(at, &c[..n], &r[..n], largest, settled, partial);
            return;
        }
        work.settled += settled;
        let (c, r) = (&c[..padded], &r[..padded]);
        lanes.add(c, r);
        let limit = partial.thresholds(self.ulp).or(limit);
        let swept = kernel::sweep(c, r, self.ulp, limit, slots);
        partial.negative += swept.negative;
        if small_r.zeros > 0 {
            let at_zero = kernel::count_at_zero(c, r);
            *both_zero += small_r.zeros - at_zero;
            if at_zero > 0 {
                partial.agreement.nonzero_at_zero += at_zero;
                partial.histogram.at_zero += at_zero;
                *blank += at_zero;
                for ((slot, c), r) in slots.iter_mut().zip(c).zip(r) {
                    *slot = if *r == 0.0 && *c != 0.0 { 0 } else { *slot };
                }
            }
        }
        if swept.flagged {
            kernel::revisit(c, r, self.ulp, limit, |i| {
                partial.look(c[i], r[i], (at + i) as u64, self.ulp);
                partial.thresholds(self.ulp).or(limit)
            });
        }
    }

    /// Counts special pairs of a block and replaces them by zeros; returns their number.
    #[inline(never)]
    fn settle(&self, at: usize, n: usize, c: &mut Scratch, r: &mut Scratch, partial: &mut Partial) -> u64 {
        let (c_dtype, r_dtype) = (self.candidate.dtype(), self.reference.dtype());
        let mut settled = 0;
        for (i, (c, r)) in c.iter_mut().zip(r.iter_mut()).take(n).enumerate() {
            // Written so that NaN is not taken for ordinary.
            let ordinary = c.abs() <= c_dtype.max_finite() && r.abs() <= r_dtype.max_finite();
            if ordinary && r.abs() < self.overflow {
                continue;
            }
            let candidate = decode(c_dtype, self.candidate.bytes(), at + i);
            let reference = decode(r_dtype, self.reference.bytes(), at + i);
            let (agreement, disagreement) = (&mut partial.agreement, &mut partial.disagreement);
            match settle(candidate, reference, self.overflow, agreement, disagreement) {
                Settled::ByValue => continue,
                Settled::Agrees => {}
                Settled::Mismatch => {
                    let (index, absolute) = ((at + i) as u64, f64::INFINITY);
                    partial.worst.push(Entry { index, candidate, reference, absolute, mismatch: true });
                }
            }
            partial.candidate.count(candidate, smallest_normal(c_dtype));
            partial.reference.count(reference, smallest_normal(r_dtype));
            settled += 1;
            (*c, *r) = (0.0, 0.0);
        }
        settled
    }

    /// A block of f64 values so large or small that squares or differences need care.
    #[inline(never)]
    fn extreme(&self, at: usize, c: &[f64], r: &[f64], largest: f64, settled: u64, partial: &mut Partial) {
        let scale = if largest >= HUGE {
            Scale::Huge
        } else if largest < TINY {
            Scale::Tiny
        } else {
            Scale::Plain
        };
        let factor = scale.factor();
        let mut exact = 0;
        for (i, (c, r)) in c.iter().zip(r).enumerate() {
            let (x, y) = (c * factor, r * factor);
            let e = x - y;
            partial.sums.signed_error.add(e, scale);
            partial.sums.error.add(e * e, scale);
            partial.sums.reference.add(y * y, scale);
            partial.sums.candidate.add(x * x, scale);
            partial.sums.product.add(x * y, scale);
            if c == r {
                exact += 1;
                continue;
            }
            let e = c - r; // may overflow to infinity: a maximum that no band contains
            partial.negative += u64::from(e < 0.0);
            if *r == 0.0 {
                partial.agreement.nonzero_at_zero += 1;
            }
            partial.histogram.count(if e.is_finite() { e } else { f64::MAX }, *r);
            partial.look(*c, *r, (at + i) as u64, self.ulp);
        }
        partial.agreement.exact += exact - settled;
        partial.histogram.exact += exact - settled;
    }
}

impl Thresholds {
    /// The higher of two thresholds, one by one.
    fn or(self, other: Self) -> Self {
        let higher = |a: f64, b: f64| if a > b { a } else { b };
        Self {
            absolute: higher(self.absolute, other.absolute),
            relative: higher(self.relative, other.relative),
            ulp: higher(self.ulp, other.ulp),
        }
    }
}

/// What small values a side of a block holds.
#[derive(Clone, Copy, Debug)]
struct Small {
    /// Zeros, settled pairs among them.
    zeros: u64,
    /// Whether there are f64 values whose differences may be subnormal.
    minuscule: bool,
}

/// Counts the classes of one side of a block whose special pairs are settled (and are now
/// zeros).
#[inline(always)]
fn count_classes(side: &mut SideClasses, dtype: DType, values: &[f64], m: Magnitudes, settled: u64) -> Small {
    side.finite += values.len() as u64 - settled;
    let normal = smallest_normal(dtype);
    let f64_like = dtype == DType::F64;
    if m.min >= if f64_like { MINUSCULE } else { normal } {
        return Small { zeros: 0, minuscule: false };
    }
    let (zeros, small) = kernel::count_small(values, normal);
    side.zero += zeros - settled;
    side.subnormal += small - zeros;
    Small { zeros, minuscule: f64_like && kernel::count_small(values, MINUSCULE).1 > zeros }
}

fn smallest_normal(dtype: DType) -> f64 {
    2f64.powi(dtype.min_exponent())
}

/// Magnitudes of finite values.
fn magnitudes(values: &[f64]) -> Magnitudes {
    let (mut max, mut min) = (0.0, f64::INFINITY);
    for x in values {
        let m = x.abs();
        max = if m > max { m } else { max };
        min = if m < min { m } else { min };
    }
    Magnitudes { special: false, max, min }
}

/// Bytes of `n` elements from `at`.
#[inline(always)]
fn slice<'a>(tensor: &TensorView<'a>, at: usize, n: usize) -> &'a [u8] {
    let size = tensor.dtype().size();
    tensor.bytes().get(at * size..(at + n) * size).unwrap_or_default()
}
