//! Maximum and minimum in which NaN never disappears.

/// The larger of two; NaN if either is NaN.
#[must_use]
pub const fn max_nan(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The smaller of two; NaN if either is NaN.
#[must_use]
pub const fn min_nan(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_wins_on_either_side() {
        assert!(max_nan(f64::NAN, 1.0).is_nan() && max_nan(1.0, f64::NAN).is_nan());
        assert!(min_nan(f64::NAN, 1.0).is_nan() && min_nan(1.0, f64::NAN).is_nan());
        assert_eq!((max_nan(1.0, 2.0), min_nan(1.0, 2.0)), (2.0, 1.0));
    }
}
