//! Sums of squares that neither overflow nor vanish.
//!
//! Squares of f64 values leave the range beyond 2^±511. Blocks of such values are summed
//! scaled by 2^∓600 and kept apart (after Blue, ACM TOMS 4(1), 1978); for every other
//! dtype and for ordinary f64 only the plain part is ever used.

use serde::Serialize;

/// Exponent by which values of extreme blocks are scaled before they are squared.
const SCALE: i32 = 600;

/// A sum of terms, in three parts of different scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ScaledSum {
    /// Plain terms.
    pub plain: f64,
    /// Terms of huge blocks, times 2^−`shift`.
    pub huge: f64,
    /// Terms of tiny blocks, times 2^`shift`.
    pub tiny: f64,
    /// 1200 for sums of products, 600 for sums of values.
    pub shift: i32,
}

/// Which part of a [`ScaledSum`] a block contributes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Plain,
    Huge,
    Tiny,
}

impl Scale {
    /// Factor for values.
    pub(super) fn factor(self) -> f64 {
        match self {
            Self::Plain => 1.0,
            Self::Huge => 2f64.powi(-SCALE),
            Self::Tiny => 2f64.powi(SCALE),
        }
    }
}

impl ScaledSum {
    const fn new(shift: i32) -> Self {
        Self { plain: 0.0, huge: 0.0, tiny: 0.0, shift }
    }

    pub(super) const fn add(&mut self, term: f64, scale: Scale) {
        match scale {
            Scale::Plain => self.plain += term,
            Scale::Huge => self.huge += term,
            Scale::Tiny => self.tiny += term,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.plain += other.plain;
        self.huge += other.huge;
        self.tiny += other.tiny;
    }

    /// Mantissa m and exponent k: the sum is m·2^k.
    fn parts(&self) -> (f64, i32) {
        let (up, down) = (2f64.powi(self.shift.min(1000)), 2f64.powi(-self.shift.min(1000)));
        // A part two scales away is below every rounding of the larger one.
        let rest = 2f64.powi(self.shift - self.shift.min(1000));
        if self.huge != 0.0 {
            (self.huge + self.plain * down / rest, self.shift)
        } else if self.plain != 0.0 {
            (self.plain + self.tiny / up / rest, 0)
        } else {
            (self.tiny, -self.shift)
        }
    }

    /// The sum; infinite or zero where it leaves the range of f64.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.scaled_by(1.0)
    }

    /// The sum times a factor, without leaving the range on the way.
    #[must_use]
    pub fn scaled_by(&self, factor: f64) -> f64 {
        let (m, k) = self.parts();
        m * factor * 2f64.powi(k / 2) * 2f64.powi(k - k / 2)
    }

    /// Square root of the sum: a norm, if the terms are squares.
    #[must_use]
    pub fn root(&self) -> f64 {
        let (m, k) = self.parts();
        m.sqrt() * 2f64.powi(k / 2)
    }
}

/// Sums over pairs compared by value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sums {
    /// Σ e.
    pub signed_error: ScaledSum,
    /// Σ e².
    pub error: ScaledSum,
    /// Σ reference².
    pub reference: ScaledSum,
    /// Σ candidate².
    pub candidate: ScaledSum,
    /// Σ reference · candidate.
    pub product: ScaledSum,
}

impl Default for Sums {
    fn default() -> Self {
        let product = ScaledSum::new(2 * SCALE);
        let signed_error = ScaledSum::new(SCALE);
        Self { signed_error, error: product, reference: product, candidate: product, product }
    }
}

impl Sums {
    pub(super) fn merge(&mut self, other: &Self) {
        self.signed_error.merge(&other.signed_error);
        self.error.merge(&other.error);
        self.reference.merge(&other.reference);
        self.candidate.merge(&other.candidate);
        self.product.merge(&other.product);
    }

    /// ‖e‖ / ‖reference‖; 0/0 is 0, an error against a zero reference is infinite.
    #[must_use]
    pub fn relative_norm(&self) -> f64 {
        let ((e, i), (r, k)) = (self.error.parts(), self.reference.parts());
        if e == 0.0 {
            0.0
        } else if r == 0.0 {
            f64::INFINITY
        } else {
            (e / r).sqrt() * 2f64.powi((i - k) / 2)
        }
    }

    /// Cosine of the angle; `None` where a norm is zero.
    #[must_use]
    pub fn cosine(&self) -> Option<f64> {
        let ((p, i), (r, j), (c, k)) = (self.product.parts(), self.reference.parts(), self.candidate.parts());
        (r > 0.0 && c > 0.0).then(|| p / r.sqrt() / c.sqrt() * 2f64.powi(i - i32::midpoint(j, k)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaled_parts_add_up() {
        let mut sum = ScaledSum::new(1200);
        sum.add(9.0, Scale::Plain);
        assert_eq!((sum.value(), sum.root()), (9.0, 3.0));
        sum.add(4.0, Scale::Huge);
        assert_eq!(sum.root(), 2.0 * 2f64.powi(600));
        assert_eq!(sum.value(), f64::INFINITY);
        let mut sum = ScaledSum::new(1200);
        sum.add(16.0, Scale::Tiny);
        assert_eq!(sum.root(), 4.0 * 2f64.powi(-600));
        assert_eq!(ScaledSum::new(1200).root(), 0.0);
    }

    #[test]
    fn a_ratio_of_huge_norms_is_not_lost_in_infinity() {
        let mut sums = Sums::default();
        sums.error.add(1.0, Scale::Huge);
        sums.reference.add(4.0, Scale::Huge);
        assert_eq!(sums.relative_norm(), 0.5);
        let mut sums = Sums::default();
        sums.error.add(1.0, Scale::Tiny);
        sums.reference.add(4.0, Scale::Tiny);
        assert_eq!(sums.relative_norm(), 0.5);
    }

    #[test]
    fn an_error_against_a_zero_reference_is_infinite() {
        let mut sums = Sums::default();
        assert_eq!(sums.relative_norm(), 0.0);
        assert_eq!(sums.cosine(), None);
        sums.error.add(1.0, Scale::Plain);
        assert_eq!(sums.relative_norm(), f64::INFINITY);
    }
}
