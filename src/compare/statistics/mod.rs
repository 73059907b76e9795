//! One pass over candidate and reference that measures everything a verdict needs.
//!
//! Conventions, fixed for the whole project:
//!
//! * e = candidate − reference, in f64. Values of both sides widen to f64 exactly;
//!   integers are subtracted exactly and the difference is then rounded to f64.
//! * **Special values are settled before any arithmetic.** Equal non-finite values agree;
//!   NaN against a number, finite against infinite and +∞ against −∞ are mismatches. They
//!   are counted by kind and never enter a sum, a maximum or the histogram: a number there
//!   could only hide them. They stand first among the worst elements.
//! * A reference beyond the range of the candidate's dtype is a class of its own: the
//!   infinity of its sign is the right answer, anything else is a mismatch.
//! * The relative error of an element is |e| / |reference|. Where the reference is zero
//!   and the candidate is not, there is none: such elements are counted
//!   ([`Agreement::nonzero_at_zero`]) and take part in everything else.
//! * One ULP is that of the candidate's dtype at the reference ([`crate::numerics::ulp_size`]).
//! * −0 equals +0.
//!
//! **Deterministic bit for bit**, whatever the number of threads and the instruction set:
//! sums run in fixed lanes over fixed stretches, which are added in order within fixed
//! chunks, chunks in order of their index; maxima break ties by the lower index. No fused
//! multiply-add.
//!
//! **How a block is worked on.** Both sides of a block of 256 elements are widened into a
//! scratch that stays in the first-level cache, while integer maxima and minima of the
//! magnitudes say whether the block holds anything special. The loops over the scratch have
//! no branch: sums, the sign of e, the binary logarithm of the relative error (the difference
//! of the two bit patterns, shifted: no division) and one comparison that asks whether any
//! element exceeds a maximum found so far. Only then the block is looked at again. Special
//! elements are counted and replaced by a pair of zeros, whose traces are subtracted. Only
//! blocks of extreme f64 values, whose squares would leave the range, go element by
//! element, with scaled sums. The loops are plain Rust, compiled for AVX2 and AVX-512 beside
//! the baseline (`pulp` picks at run time); the losing option, intrinsics, needs `unsafe` and
//! a version for each machine.

mod classes;
mod histogram;
mod integers;
mod kernel;
mod pass;
mod sums;
mod widen;
mod worst;

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;

use serde::Serialize;

use super::Pair;
use crate::numerics::DType;

pub use classes::{Agreement, Disagreement, SideClasses};
pub use histogram::{LOWEST_BIN, Log2Histogram, Quantile};
pub use sums::{ScaledSum, Sums};
pub use worst::{Extremum, K_WORST, WorstElement, unravel};

/// Everything that one pass over candidate and reference measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Number of elements of either side.
    pub elements: u64,
    /// Dtype of the candidate: the unit of ULP.
    pub candidate_dtype: DType,
    /// Dtype of the reference.
    pub reference_dtype: DType,
    /// Elements of the candidate by class.
    pub candidate: SideClasses,
    /// Elements of the reference by class.
    pub reference: SideClasses,
    /// Pairs that agree by class, or are compared by value.
    pub agreement: Agreement,
    /// Pairs that no arithmetic can set against each other, by kind.
    pub disagreement: Disagreement,
    /// Largest |e| over pairs compared by value; `None` if there is no such pair.
    pub max_absolute: Option<Extremum>,
    /// Largest |e| / |reference| over pairs compared by value with a reference that is
    /// not zero.
    pub max_relative: Option<Extremum>,
    /// Largest |e| in ULP of the candidate's dtype at the reference.
    pub max_ulp: Option<Extremum>,
    /// Pairs with e > 0.
    pub positive: u64,
    /// Pairs with e < 0.
    pub negative: u64,
    /// Sums over pairs compared by value.
    pub sums: Sums,
    /// Binary logarithm of the relative error of pairs compared by value.
    pub histogram: Log2Histogram,
    /// Up to [`K_WORST`] elements: mismatches first, then by |e|, then by index.
    pub worst: Vec<WorstElement>,
}

impl Statistics {
    /// Pairs that entered sums, maxima and histogram.
    #[must_use]
    pub const fn compared_by_value(&self) -> u64 {
        self.agreement.finite
    }

    /// Pairs that disagree before any arithmetic.
    #[must_use]
    pub const fn mismatches(&self) -> u64 {
        self.disagreement.total()
    }

    /// Whether every pair is equal (−0 equals +0; equal non-finite values are equal).
    /// Never true where nothing was compared.
    #[must_use]
    pub const fn all_equal(&self) -> bool {
        self.elements > 0 && self.mismatches() == 0 && self.agreement.exact == self.agreement.finite
    }

    /// ‖e‖ / ‖reference‖. 0/0 is 0; an error against a zero reference is infinite;
    /// mismatches make it infinite too, so that no threshold can pass over them.
    #[must_use]
    pub fn relative_norm(&self) -> f64 {
        if self.mismatches() > 0 { f64::INFINITY } else { self.sums.relative_norm() }
    }

    /// ‖e‖, infinite if there are mismatches.
    #[must_use]
    pub fn error_norm(&self) -> f64 {
        if self.mismatches() > 0 { f64::INFINITY } else { self.sums.error.root() }
    }

    /// Mean of e (bias) over pairs compared by value; `None` if there is none.
    #[must_use]
    pub fn mean_signed_error(&self) -> Option<f64> {
        let n = self.compared_by_value();
        (n > 0).then(|| self.sums.signed_error.scaled_by(1.0 / n as f64))
    }

    /// |#(e > 0) − #(e < 0)| / N: near 0 for unbiased rounding, near 1 for truncation.
    /// `None` if no pair was compared by value.
    #[must_use]
    pub fn error_balance(&self) -> Option<f64> {
        let n = self.compared_by_value();
        (n > 0).then(|| self.positive.abs_diff(self.negative) as f64 / n as f64)
    }

    /// Cosine of the angle between the two; `None` where a norm is zero, so that constants
    /// and zeros cannot pass by it. Reported, never judged by: 0.99 allows an error of 14 %.
    #[must_use]
    pub fn cosine(&self) -> Option<f64> {
        self.sums.cosine()
    }
}

/// Measures a pair of equal shape and dtype class.
pub(super) fn measure(pair: &Pair<'_>) -> Statistics {
    if pair.candidate.dtype().is_float() { pass::measure(pair) } else { integers::measure(pair) }
}
