//! The branch-free loops over a widened block, and the second look at flagged ones.

#![expect(clippy::inline_always, reason = "bodies are compiled once for each instruction set")]
#![expect(clippy::needless_bitwise_bool, reason = "without branches the loops vectorise")]

use super::histogram::SLOTS;
use super::widen::BLOCK;
use crate::numerics::DType;

/// Lanes of every sum: part of the result's definition, not a tuning knob.
pub(super) const LANES: usize = 8;
const EXPONENT: u64 = 0x7ff << 52;

/// Slot of each element of a block in the table of exponents.
pub(super) type Slots = [u16; BLOCK];

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

/// Sums of one block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockSums {
    pub signed_error: f64,
    pub error: f64,
    pub reference: f64,
    pub candidate: f64,
    pub product: f64,
}

/// Sums over a block that is padded with zeros to a multiple of [`LANES`].
#[inline(always)]
pub(super) fn sums(candidate: &[f64], reference: &[f64]) -> BlockSums {
    let mut signed = [0.0; LANES];
    let mut error = [0.0; LANES];
    let mut squares_r = [0.0; LANES];
    let mut squares_c = [0.0; LANES];
    let mut product = [0.0; LANES];
    for (c, r) in candidate.as_chunks::<LANES>().0.iter().zip(reference.as_chunks::<LANES>().0) {
        for i in 0..LANES {
            let e = c[i] - r[i];
            signed[i] += e;
            error[i] += e * e;
            squares_r[i] += r[i] * r[i];
            squares_c[i] += c[i] * c[i];
            product[i] += c[i] * r[i];
        }
    }
    BlockSums {
        signed_error: across(signed),
        error: across(error),
        reference: across(squares_r),
        candidate: across(squares_c),
        product: across(product),
    }
}

/// Adds lanes in a fixed order.
fn across(lanes: [f64; LANES]) -> f64 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// What the sweep saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    pub positive: u64,
    pub negative: u64,
    /// Whether any element exceeds a threshold.
    pub flagged: bool,
}

/// Signs of e, slots of the relative error, and whether anything exceeds a threshold.
///
/// Wants finite values whose magnitudes are 0 or at least 2^-900: then e is normal or 0.
#[inline(always)]
pub(super) fn sweep(
    candidate: &[f64],
    reference: &[f64],
    ulp: UlpScale,
    limit: Thresholds,
    slots: &mut Slots,
) -> Swept {
    let mut positive = [0u64; LANES];
    let mut negative = [0u64; LANES];
    let mut flags = [0u64; LANES];
    let chunks = candidate.as_chunks::<LANES>().0.iter().zip(reference.as_chunks::<LANES>().0);
    for ((c, r), slot) in chunks.zip(slots.as_chunks_mut::<LANES>().0) {
        for i in 0..LANES {
            let e = c[i] - r[i];
            let (error, magnitude) = (e.abs(), r[i].abs());
            positive[i] += u64::from(e > 0.0);
            negative[i] += u64::from(e < 0.0);
            let exceeds = exceeds(error, magnitude, ulp, limit);
            flags[i] |= u64::from(exceeds);
            // floor(log2(|e| / |r|)) + 2048 without dividing: see `histogram::log2_ratio`.
            let difference = error.to_bits().wrapping_sub(magnitude.to_bits()).wrapping_add(2048 << 52);
            let exponent = (difference >> 52) as u16;
            slot[i] = if error == 0.0 { 0 } else { exponent };
        }
    }
    Swept {
        positive: positive.iter().sum(),
        negative: negative.iter().sum(),
        flagged: flags.iter().any(|f| *f != 0),
    }
}

#[inline(always)]
fn exceeds(error: f64, magnitude: f64, ulp: UlpScale, limit: Thresholds) -> bool {
    (error > limit.absolute)
        | (error > limit.relative * magnitude)
        | (error > limit.ulp * ulp.power(magnitude))
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

/// Counts slots. Elements take turns between two counters, so that runs of one exponent do
/// not wait for each other.
#[inline(always)]
pub(super) fn tally(slots: &[u16], table: &mut [[u32; 2]]) {
    const MASK: u16 = 4095; // of `SLOTS`: lets the compiler drop the bounds check
    let Ok(table): Result<&mut [[u32; 2]; SLOTS], _> = table.try_into() else { return };
    let (pairs, rest) = slots.as_chunks::<2>();
    for [a, b] in pairs {
        table[usize::from(a & MASK)][0] += 1;
        table[usize::from(b & MASK)][1] += 1;
    }
    for a in rest {
        table[usize::from(a & MASK)][0] += 1;
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
