//! The branch-free loops over a widened block, and the second look at flagged ones.

#![expect(clippy::inline_always, reason = "bodies are compiled once for each instruction set")]
#![expect(clippy::needless_bitwise_bool, reason = "without branches the loops vectorise")]
#![expect(clippy::cast_possible_truncation, reason = "bits that a shift or a clamp has bounded")]

use super::Sums;
use super::histogram::{LOWEST_SLOT, SLOTS};
use super::sums::Scale;
use crate::numerics::DType;

/// Lanes of every sum: part of the result's definition, not a tuning knob.
pub(super) const LANES: usize = 8;
const EXPONENT: u64 = 0x7ff << 52;

/// What an element has to exceed to be of interest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    /// |e|.
    pub absolute: f64,
    /// |e| / |reference|.
    pub relative: f64,
    /// |e| / 2^exponent(reference).
    pub ulp: f64,
}

/// Size of one ULP of a dtype, as the sweep computes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct UlpScale {
    /// Smallest normal value: the exponent is not taken below it.
    pub smallest_normal: f64,
    /// ULP at 1.
    pub epsilon: f64,
}

impl UlpScale {
    pub(super) fn of(dtype: DType) -> Self {
        Self { smallest_normal: 2f64.powi(dtype.min_exponent()), epsilon: 2.0 * dtype.unit_roundoff() }
    }

    /// 2^exponent of a finite value, not below the smallest normal.
    #[inline(always)]
    pub(super) fn power(self, magnitude: f64) -> f64 {
        let power = f64::from_bits(magnitude.to_bits() & EXPONENT);
        if power > self.smallest_normal { power } else { self.smallest_normal }
    }
}

/// Sums in lanes, as they run over the blocks of a stretch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneSums {
    signed_error: [f64; LANES],
    error: [f64; LANES],
    reference: [f64; LANES],
    candidate: [f64; LANES],
    product: [f64; LANES],
}

impl LaneSums {
    /// Adds a block that is padded with zeros to a multiple of [`LANES`].
    ///
    /// One short loop a sum, on copies that are stored at the end: in this form compilers
    /// keep each sum in vector registers.
    #[inline(always)]
    pub(super) fn add(&mut self, candidate: &[f64], reference: &[f64]) {
        let Self {
            signed_error: mut signed,
            mut error,
            reference: mut squares_r,
            candidate: mut squares_c,
            mut product,
        } = *self;
        for (c, r) in candidate.as_chunks::<LANES>().0.iter().zip(reference.as_chunks::<LANES>().0) {
            for i in 0..LANES {
                signed[i] += c[i] - r[i];
            }
            for i in 0..LANES {
                let e = c[i] - r[i];
                error[i] += e * e;
            }
            for i in 0..LANES {
                squares_r[i] += r[i] * r[i];
            }
            for i in 0..LANES {
                squares_c[i] += c[i] * c[i];
            }
            for i in 0..LANES {
                product[i] += c[i] * r[i];
            }
        }
        *self = Self { signed_error: signed, error, reference: squares_r, candidate: squares_c, product };
    }

    /// Adds the lanes to sums, in a fixed order. Not inlined: next to the loop it would
    /// mislead the compiler about the lanes.
    #[inline(never)]
    pub(super) fn across(&self, sums: &mut Sums) {
        let across = |[a, b, c, d, e, f, g, h]: [f64; LANES]| ((a + e) + (c + g)) + ((b + f) + (d + h));
        for (sum, lanes) in [
            (&mut sums.signed_error, self.signed_error),
            (&mut sums.error, self.error),
            (&mut sums.reference, self.reference),
            (&mut sums.candidate, self.candidate),
            (&mut sums.product, self.product),
        ] {
            sum.add(across(lanes), Scale::Plain);
        }
    }
}

/// What the sweep saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    pub negative: u64,
    /// Whether any element exceeds a threshold.
    pub flagged: bool,
}

/// Counts e < 0, sorts relative errors into slots, and says whether any element exceeds a
/// threshold.
///
/// Wants finite values whose magnitudes are 0 or at least 2^-900: then e is normal or 0.
/// Pairs of zeros land in the slot of exponent 0, nonzero candidates at a zero reference
/// anywhere above it; the caller corrects both.
#[inline(always)]
pub(super) fn sweep(
    candidate: &[f64],
    reference: &[f64],
    ulp: UlpScale,
    limit: Thresholds,
    slots: &mut [u8],
) -> Swept {
    const HIGHEST: i16 = LOWEST_SLOT + 255;
    let (mut negative, mut flags) = (0u64, 0u64);
    for ((c, r), slot) in candidate.iter().zip(reference).zip(slots) {
        let e = c - r;
        let (error, magnitude) = (e.abs(), r.abs());
        negative += u64::from(e < 0.0);
        flags |= u64::from(exceeds(error, magnitude, ulp, limit));
        // floor(log2(|e| / |r|)) without dividing: see `histogram::log2_ratio`. Twelve bits
        // are left, the sign is the highest of them.
        let difference = error.to_bits().wrapping_sub(magnitude.to_bits()) >> 52;
        let exponent = ((difference as u16) << 4).cast_signed() >> 4;
        *slot = (exponent.clamp(LOWEST_SLOT, HIGHEST) - LOWEST_SLOT).cast_unsigned() as u8;
    }
    Swept { negative, flagged: flags != 0 }
}

#[inline(always)]
fn exceeds(error: f64, magnitude: f64, ulp: UlpScale, limit: Thresholds) -> bool {
    let lower = |a: f64, b: f64| if a < b { a } else { b };
    // ∞·0 is NaN and then not the lower one.
    let by_size = lower(limit.relative * magnitude, limit.ulp * ulp.power(magnitude));
    error > lower(by_size, limit.absolute)
}

/// Calls `visit` with the index of every element that exceeds the thresholds, in order;
/// it returns the thresholds for what follows.
#[inline(always)]
pub(super) fn revisit(
    candidate: &[f64],
    reference: &[f64],
    ulp: UlpScale,
    mut limit: Thresholds,
    mut visit: impl FnMut(usize) -> Thresholds,
) {
    let chunks = candidate.as_chunks::<LANES>().0.iter().zip(reference.as_chunks::<LANES>().0);
    for (at, (c, r)) in chunks.enumerate() {
        let mut any = false;
        for i in 0..LANES {
            any |= exceeds((c[i] - r[i]).abs(), r[i].abs(), ulp, limit);
        }
        if any {
            for i in 0..LANES {
                if exceeds((c[i] - r[i]).abs(), r[i].abs(), ulp, limit) {
                    limit = visit(at * LANES + i);
                }
            }
        }
    }
}

/// Counts slots, padded to a multiple of 64.
///
/// Relative errors of one tensor lie close together: within the few slots that occur, 64
/// are compared at a time, which is several times faster than incrementing one by one.
#[inline(always)]
pub(super) fn tally(slots: &[u8], counts: &mut [u64; SLOTS]) {
    const ROW: usize = 64;
    let rows = slots.as_chunks::<ROW>().0;
    let (mut zeros, mut lowest, mut highest) = (0u64, u8::MAX, 0u8);
    for slot in slots {
        zeros += u64::from(*slot == 0);
        // Slot 0 wraps to the top: equal pairs are common, and far from all others.
        let above_zero = slot.wrapping_sub(1);
        lowest = if above_zero < lowest { above_zero } else { lowest };
        highest = if *slot > highest { *slot } else { highest };
    }
    counts[0] += zeros;
    if highest == 0 {
        return;
    }
    if highest - lowest > 64 || rows.len() > usize::from(u8::MAX) {
        for slot in slots.iter().filter(|slot| **slot != 0) {
            counts[usize::from(*slot)] += 1;
        }
        return;
    }
    for wanted in lowest + 1..=highest {
        let mut lanes = [0u8; ROW];
        for row in rows {
            for i in 0..ROW {
                lanes[i] += u8::from(row[i] == wanted);
            }
        }
        counts[usize::from(wanted)] += lanes.iter().map(|n| u64::from(*n)).sum::<u64>();
    }
}

/// Zeros, and magnitudes below `limit` (zeros included).
#[inline(always)]
pub(super) fn count_small(values: &[f64], limit: f64) -> (u64, u64) {
    let (mut zeros, mut small) = (0u64, 0u64);
    for x in values {
        zeros += u64::from(*x == 0.0);
        small += u64::from(x.abs() < limit);
    }
    (zeros, small)
}

/// Pairs whose reference is zero and whose candidate is not.
#[inline(always)]
pub(super) fn count_at_zero(candidate: &[f64], reference: &[f64]) -> u64 {
    candidate.iter().zip(reference).map(|(c, r)| u64::from((*r == 0.0) & (*c != 0.0))).sum()
}
