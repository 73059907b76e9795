//! [`Log2Histogram`] of relative errors, and quantiles from it.

use serde::Serialize;

/// Exponent of the first bin: relative errors in [2^-64, 2^-63), and all below.
pub const LOWEST_BIN: i32 = -64;
const BINS: usize = 128;

/// Relative errors by their binary exponent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Log2Histogram {
    /// Equal pairs: relative error 0 (0 against 0 included).
    pub exact: u64,
    /// Bin i holds relative errors in [2^(i−64), 2^(i−63)); the first also all smaller
    /// ones, the last also all larger ones.
    pub bins: Vec<u64>,
    /// Pairs whose reference is zero and whose candidate is not: no relative error.
    pub at_zero: u64,
}

/// An upper bound of a quantile of the relative error.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantile {
    /// The quantile is an equal pair.
    Exact,
    /// The quantile lies in [2^(exponent), 2^(exponent + 1)).
    Below {
        /// Upper edge of its bin, at most twice the true value.
        bound: f64,
    },
    /// The quantile is a pair whose reference is zero.
    AtZero,
}

impl Default for Log2Histogram {
    fn default() -> Self {
        Self { exact: 0, bins: vec![0; BINS], at_zero: 0 }
    }
}

impl Log2Histogram {
    /// Number of pairs in it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.exact + self.at_zero + self.bins.iter().sum::<u64>()
    }

    /// Upper bound of the `q`-quantile (0 < q <= 1) of relative error: the smallest bin
    /// edge below which at least that share of the pairs lies. `None` if the histogram is
    /// empty or `q` is not a share.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let total = self.total();
        if total == 0 || !(q > 0.0 && q <= 1.0) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 < q·total <= total")]
        let rank = ((q * total as f64).ceil() as u64).clamp(1, total);
        let mut below = self.exact;
        if below >= rank {
            return Some(Quantile::Exact);
        }
        for (exponent, count) in (LOWEST_BIN + 1..).zip(&self.bins) {
            below += count;
            if below >= rank {
                return Some(Quantile::Below { bound: 2f64.powi(exponent) });
            }
        }
        Some(Quantile::AtZero)
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.exact += other.exact;
        self.at_zero += other.at_zero;
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            *bin += more;
        }
    }

    /// Counts `n` pairs of relative error in [2^exponent, 2^(exponent+1)).
    pub(super) fn add(&mut self, exponent: i32, n: u64) {
        let bin = usize::try_from(exponent - LOWEST_BIN).unwrap_or(0).min(BINS - 1);
        if let Some(bin) = self.bins.get_mut(bin) {
            *bin += n;
        }
    }

    /// Counts one pair by value.
    pub(super) fn count(&mut self, error: f64, reference: f64) {
        if error == 0.0 {
            self.exact += 1;
        } else if reference == 0.0 {
            self.at_zero += 1;
        } else {
            self.add(log2_ratio(error, reference), 1);
        }
    }
}

/// Largest k with 2^k <= |a / b|, without dividing, exact for every pair of finite values
/// that are not zero.
pub(super) fn log2_ratio(a: f64, b: f64) -> i32 {
    let (a, b) = (normalised(a), normalised(b));
    // The patterns of positive floats are exponent and mantissa: a difference of patterns
    // borrows from the exponent exactly if the mantissa of `a` is the smaller one.
    // (128 bits, because subnormals reach beyond the 11 bits of the exponent field.)
    i32::try_from((i128::from(a) - i128::from(b)) >> 52).unwrap_or(i32::MAX)
}

/// Bit pattern of |x| as if exponents had no lower limit.
fn normalised(x: f64) -> i64 {
    let bits = i64::try_from(x.abs().to_bits()).unwrap_or(i64::MAX);
    if bits >> 52 > 0 {
        return bits;
    }
    let shift = i64::from(bits.leading_zeros()) - 11;
    // Shifting the leading bit onto the implicit one raises the exponent field to 1.
    (bits << shift) - (shift << 52)
}

/// Slots that a sweep sorts relative errors into: their exponents, from [`LOWEST_SLOT`] on.
pub(super) const SLOTS: usize = 256;
/// Exponent of slot 0. No relative error of two unequal values of at least 2^-900 is below
/// 2^-54, and equal pairs come out below 2^-123: slot 0 holds them, and nothing else.
pub(super) const LOWEST_SLOT: i16 = -100;

/// Adds slot counts to a histogram, slot 0 left out.
pub(super) fn fold_slots(counts: &[u64; SLOTS], histogram: &mut Log2Histogram) {
    for (exponent, count) in (i32::from(LOWEST_SLOT)..).zip(counts).skip(1) {
        histogram.add(exponent, *count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_of_a_ratio_is_exact() {
        let tiny = f64::from_bits(1);
        for (a, b, expected) in [
            (1.0, 1.0, 0),
            (-3.0, 2.0, 0),
            (1.0, 1.0 + f64::EPSILON, -1),
            (1.0 + f64::EPSILON, 1.0, 0),
            (2f64.powi(-53), 1.0, -53),
            (tiny, 1.0, -1074),
            (1.0, tiny, 1074),
            (3.0 * tiny, tiny, 1),
            (f64::MAX, tiny, 2097),
            (tiny, f64::MAX, -2098),
            (f64::MIN_POSITIVE, 3.0 * tiny, 50),
        ] {
            assert_eq!(log2_ratio(a, b), expected, "{a:e} / {b:e}");
        }
    }

    #[test]
    fn quantiles_bound_from_above_and_keep_the_ends() {
        let mut h = Log2Histogram::default();
        assert_eq!(h.quantile(0.5), None);
        h.exact = 50;
        h.add(-24, 45);
        h.add(-3, 4);
        h.at_zero = 1;
        assert_eq!(h.quantile(0.5), Some(Quantile::Exact));
        assert_eq!(h.quantile(0.51), Some(Quantile::Below { bound: 2f64.powi(-23) }));
        assert_eq!(h.quantile(0.99), Some(Quantile::Below { bound: 0.25 }));
        assert_eq!(h.quantile(1.0), Some(Quantile::AtZero));
        assert_eq!(h.quantile(0.0), None);
        assert_eq!(h.quantile(f64::NAN), None);
    }

    #[test]
    fn exponents_beyond_the_bins_go_to_the_ends() {
        let mut h = Log2Histogram::default();
        h.add(-2000, 1);
        h.add(2000, 1);
        assert_eq!((h.bins[0], h.bins[BINS - 1], h.total()), (1, 1, 2));
    }
}
