//! Counts of elements by class: never merged.

use serde::Serialize;

/// Elements of one side by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SideClasses {
    /// Finite values, zeros and subnormals included.
    pub finite: u64,
    /// Zeros of either sign.
    pub zero: u64,
    /// Subnormals of this side's dtype.
    pub subnormal: u64,
    /// Not a number.
    pub nan: u64,
    /// +∞.
    pub positive_infinity: u64,
    /// −∞.
    pub negative_infinity: u64,
}

/// Pairs that agree by class, or whose values are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Both finite and the reference within the candidate's range: compared by value.
    pub finite: u64,
    /// Of those: equal.
    pub exact: u64,
    /// Of those: the reference is zero and the candidate is not (no relative error).
    pub nonzero_at_zero: u64,
    /// Both NaN.
    pub nan: u64,
    /// Both +∞.
    pub positive_infinity: u64,
    /// Both −∞.
    pub negative_infinity: u64,
    /// The reference is finite but beyond the candidate's dtype, and the candidate is the
    /// infinity of its sign, as it should be.
    pub expected_overflow: u64,
}

/// Pairs that disagree before any arithmetic, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// Candidate NaN, reference a number (infinities included).
    pub nan_for_number: u64,
    /// Candidate a number (infinities included), reference NaN.
    pub number_for_nan: u64,
    /// Candidate infinite, reference finite and within range.
    pub infinite_for_finite: u64,
    /// Candidate finite, reference infinite.
    pub finite_for_infinite: u64,
    /// Infinities of opposite sign.
    pub opposite_infinities: u64,
    /// The reference is beyond the candidate's dtype and the candidate is a number other
    /// than the infinity of its sign: saturated, wrapped, or wrong.
    pub missed_overflow: u64,
}

impl SideClasses {
    pub(super) const fn merge(&mut self, other: &Self) {
        self.finite += other.finite;
        self.zero += other.zero;
        self.subnormal += other.subnormal;
        self.nan += other.nan;
        self.positive_infinity += other.positive_infinity;
        self.negative_infinity += other.negative_infinity;
    }

    /// Counts one value; `min_normal` of its dtype.
    pub(super) const fn count(&mut self, x: f64, min_normal: f64) {
        if x.is_nan() {
            self.nan += 1;
        } else if x == f64::INFINITY {
            self.positive_infinity += 1;
        } else if x == f64::NEG_INFINITY {
            self.negative_infinity += 1;
        } else {
            self.finite += 1;
            if x == 0.0 {
                self.zero += 1;
            } else if x.abs() < min_normal {
                self.subnormal += 1;
            }
        }
    }
}

impl Agreement {
    pub(super) const fn merge(&mut self, other: &Self) {
        self.finite += other.finite;
        self.exact += other.exact;
        self.nonzero_at_zero += other.nonzero_at_zero;
        self.nan += other.nan;
        self.positive_infinity += other.positive_infinity;
        self.negative_infinity += other.negative_infinity;
        self.expected_overflow += other.expected_overflow;
    }
}

impl Disagreement {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.nan_for_number
            + self.number_for_nan
            + self.infinite_for_finite
            + self.finite_for_infinite
            + self.opposite_infinities
            + self.missed_overflow
    }

    pub(super) const fn merge(&mut self, other: &Self) {
        self.nan_for_number += other.nan_for_number;
        self.number_for_nan += other.number_for_nan;
        self.infinite_for_finite += other.infinite_for_finite;
        self.finite_for_infinite += other.finite_for_infinite;
        self.opposite_infinities += other.opposite_infinities;
        self.missed_overflow += other.missed_overflow;
    }
}

/// Settles a pair that arithmetic cannot compare. `overflow`: magnitude from which a
/// reference rounds to infinity in the candidate's dtype. Returns whether the pair was
/// special and, if so, whether it is a mismatch.
pub(super) const fn settle(
    candidate: f64,
    reference: f64,
    overflow: f64,
    agreement: &mut Agreement,
    disagreement: &mut Disagreement,
) -> Settled {
    let counter = match (candidate.is_nan(), reference.is_nan()) {
        (true, true) => {
            agreement.nan += 1;
            return Settled::Agrees;
        }
        (true, false) => &mut disagreement.nan_for_number,
        (false, true) => &mut disagreement.number_for_nan,
        (false, false) => match (candidate.is_infinite(), reference.is_infinite()) {
            (true, true) if candidate == reference => {
                if candidate > 0.0 {
                    agreement.positive_infinity += 1;
                } else {
                    agreement.negative_infinity += 1;
                }
                return Settled::Agrees;
            }
            (true, true) => &mut disagreement.opposite_infinities,
            (false, true) => &mut disagreement.finite_for_infinite,
            (infinite, false) if reference.abs() >= overflow => {
                if infinite && (candidate > 0.0) == (reference > 0.0) {
                    agreement.expected_overflow += 1;
                    return Settled::Agrees;
                }
                &mut disagreement.missed_overflow
            }
            (true, false) => &mut disagreement.infinite_for_finite,
            (false, false) => return Settled::ByValue,
        },
    };
    *counter += 1;
    Settled::Mismatch
}

/// Outcome of [`settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Ordinary values: compare them.
    ByValue,
    /// Equal non-finite values, or an overflow that was to be expected.
    Agrees,
    /// No arithmetic can set them against each other.
    Mismatch,
}
