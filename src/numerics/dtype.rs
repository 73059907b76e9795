//! Element types that travel between checkpoint, batch, engines and recordings.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Element type of a tensor. Boolean masks are `U8` with values 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16: 11 bits of precision, largest finite value 65504.
    F16,
    /// bfloat16: the range of `F32` with 8 bits of precision.
    BF16,
    /// Signed 64-bit integer (labels, indices).
    I64,
    /// Unsigned 8-bit integer (masks).
    U8,
}

/// A dtype name that this project does not handle.
#[derive(Debug, thiserror::Error)]
#[error("unknown dtype `{0}`; supported are f64, f32, f16, bf16, i64 and u8")]
pub struct UnknownDType(pub String);

impl DType {
    /// Every dtype, widest float first.
    pub const ALL: [Self; 6] = [Self::F64, Self::F32, Self::F16, Self::BF16, Self::I64, Self::U8];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::U8 => 1,
        }
    }

    /// Whether values are rounded (as opposed to exact integers).
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::BF16)
    }

    /// Significant bits, the implicit leading one included; 0 for integers.
    #[must_use]
    pub const fn precision_bits(self) -> u32 {
        match self {
            Self::F64 => 53,
            Self::F32 => 24,
            Self::F16 => 11,
            Self::BF16 => 8,
            Self::I64 | Self::U8 => 0,
        }
    }

    /// Unit roundoff u = 2^-p for round to nearest; 0 for integers.
    #[must_use]
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Self::F64 => f64::EPSILON / 2.0,
            Self::F32 => 5.960_464_477_539_063e-8,
            Self::F16 => 4.882_812_5e-4,
            Self::BF16 => 3.906_25e-3,
            Self::I64 | Self::U8 => 0.0,
        }
    }

    /// Smallest exponent e of a normal value 2^e.
    #[must_use]
    pub const fn min_exponent(self) -> i32 {
        match self {
            Self::F64 => -1022,
            Self::F32 | Self::BF16 => -126,
            Self::F16 => -14,
            Self::I64 | Self::U8 => 0,
        }
    }

    /// Largest finite value; for integers the largest value.
    #[must_use]
    pub const fn max_finite(self) -> f64 {
        match self {
            Self::F64 => f64::MAX,
            Self::F32 => f32::MAX as f64,
            Self::F16 => 65504.0,
            Self::BF16 => 3.389_531_389_251_535_5e38,
            Self::I64 => i64::MAX as f64,
            Self::U8 => 255.0,
        }
    }

    /// Lower-case name as used in targets, policies and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I64 => "i64",
            Self::U8 => "u8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownDType(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_roundoff_is_half_the_gap_above_one() {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
            let expected = 2f64.powi(-i32::try_from(dtype.precision_bits()).unwrap());
            assert_eq!(dtype.unit_roundoff().to_bits(), expected.to_bits(), "{dtype}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
        assert!("f8".parse::<DType>().is_err());
    }
}
