//! Distance in units in the last place.
//!
//! Conventions: one ULP at x is the gap between neighbouring values of the dtype around
//! x, in the binade of the reference value; below the smallest normal it is the
//! subnormal spacing. The distance of two values is measured in ULP of the dtype of the
//! *candidate*, at the *reference*, and is a real number, because the reference is f64.

use super::DType;

/// Size of one ULP of `dtype` at `x`. Integers: 1. Non-finite `x`: NaN.
#[must_use]
pub fn ulp_size(x: f64, dtype: DType) -> f64 {
    if !dtype.is_float() {
        return 1.0;
    }
    if !x.is_finite() {
        return f64::NAN;
    }
    let exponent = if x == 0.0 { dtype.min_exponent() } else { exponent_of(x).max(dtype.min_exponent()) };
    let precision = i32::try_from(dtype.precision_bits()).unwrap_or(53);
    power_of_two(exponent - precision + 1)
}

/// |candidate − reference| in ULP of `dtype` at `reference`.
///
/// Equal values (equal infinities included) are 0 apart; a value and a non-finite
/// disagreement are infinitely far apart.
#[must_use]
pub fn ulp_distance(candidate: f64, reference: f64, dtype: DType) -> f64 {
    if candidate.to_bits() == reference.to_bits() || candidate == reference {
        return 0.0;
    }
    if candidate.is_nan() && reference.is_nan() {
        return 0.0;
    }
    if !candidate.is_finite() || !reference.is_finite() {
        return f64::INFINITY;
    }
    (candidate - reference).abs() / ulp_size(reference, dtype)
}

/// Exponent e with 2^e <= |x| < 2^(e+1), subnormals included. `x` finite, not zero.
fn exponent_of(x: f64) -> i32 {
    let bits = x.to_bits() & !(1 << 63);
    let biased = i32::try_from(bits >> 52).unwrap_or(0);
    if biased > 0 { biased - 1023 } else { 63 - i32::try_from(bits.leading_zeros()).unwrap_or(0) - 1074 }
}

/// 2^e exactly, without libm; subnormal results included.
fn power_of_two(e: i32) -> f64 {
    if e >= -1022 {
        f64::from_bits(u64::try_from(e + 1023).unwrap_or(0) << 52)
    } else {
        f64::from_bits(1u64 << u32::try_from((e + 1074).max(0)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulp_at_special_values() {
        assert_eq!(ulp_size(1.0, DType::F32), f64::from(f32::EPSILON));
        assert_eq!(ulp_size(-2.0, DType::F32), 2.0 * f64::from(f32::EPSILON));
        assert_eq!(ulp_size(0.0, DType::F32), f64::from(f32::from_bits(1)));
        assert_eq!(ulp_size(1.0, DType::BF16), 2f64.powi(-7));
        assert_eq!(ulp_size(0.0, DType::F64), f64::from_bits(1));
        assert_eq!(ulp_size(f64::from_bits(1), DType::F64), f64::from_bits(1));
        assert_eq!(ulp_size(7.0, DType::I64), 1.0);
        assert!(ulp_size(f64::NAN, DType::F32).is_nan());
    }

    #[test]
    fn distance_never_hides_a_non_finite_value() {
        assert_eq!(ulp_distance(f64::NAN, 1.0, DType::F32), f64::INFINITY);
        assert_eq!(ulp_distance(f64::INFINITY, f64::NEG_INFINITY, DType::F32), f64::INFINITY);
        assert_eq!(ulp_distance(f64::INFINITY, f64::INFINITY, DType::F32), 0.0);
        assert_eq!(ulp_distance(f64::NAN, f64::NAN, DType::F32), 0.0);
        assert_eq!(ulp_distance(0.0, -0.0, DType::F32), 0.0);
    }

    #[test]
    fn neighbours_are_one_apart() {
        let x = 1.5f32;
        let next = f32::from_bits(x.to_bits() + 1);
        assert_eq!(ulp_distance(f64::from(next), f64::from(x), DType::F32), 1.0);
    }
}
