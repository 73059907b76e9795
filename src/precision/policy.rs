//! [`Precision`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::numerics::{DType, FloatFormat, InputRounding};

/// A dtype policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// Everything in f64.
    F64,
    /// Everything in f32.
    F32,
    /// Everything held in f32; matrix products and convolutions read their operands in TF32.
    Tf32,
    /// Everything in f16.
    F16,
    /// Everything in bf16.
    Bf16,
    /// Mixed: matrix products in f16, weights and the rest in f32.
    AmpF16,
    /// Mixed: matrix products in bf16, weights and the rest in f32.
    AmpBf16,
}

/// A precision name that is not known.
#[derive(Debug, thiserror::Error)]
#[error("unknown precision `{0}`; known are f64, f32, tf32, f16, bf16, amp-f16 and amp-bf16")]
pub struct UnknownPrecision(pub String);

impl Precision {
    /// Every precision, widest first.
    pub const ALL: [Self; 7] =
        [Self::F64, Self::F32, Self::Tf32, Self::F16, Self::Bf16, Self::AmpF16, Self::AmpBf16];

    /// Name in targets, policies and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::AmpF16 => "amp-f16",
            Self::AmpBf16 => "amp-bf16",
        }
    }

    /// Whether matrix products and the rest have different dtypes.
    #[must_use]
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::AmpF16 | Self::AmpBf16)
    }

    /// What weights and buffers are held in.
    #[must_use]
    pub const fn weights(self) -> DType {
        match self {
            Self::F64 => DType::F64,
            Self::F32 | Self::Tf32 | Self::AmpF16 | Self::AmpBf16 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
        }
    }

    /// What floating-point inputs of the batch are held in.
    #[must_use]
    pub const fn inputs(self) -> DType {
        self.weights()
    }

    /// What matrix products, convolutions and attention compute and return.
    #[must_use]
    pub const fn matmul(self) -> DType {
        match self {
            Self::AmpF16 => DType::F16,
            Self::AmpBf16 => DType::BF16,
            _ => self.weights(),
        }
    }

    /// What other activations are held in: with a mixed precision the narrowest of what they
    /// may be, since an elementwise operator follows its arguments.
    #[must_use]
    pub const fn activations(self) -> DType {
        self.matmul()
    }

    /// What normalisation layers compute and return.
    #[must_use]
    pub const fn normalisation(self) -> DType {
        self.weights()
    }

    /// What softmax and its relatives compute and return.
    #[must_use]
    pub const fn softmax(self) -> DType {
        self.weights()
    }

    /// What sums, means and variances compute and return.
    #[must_use]
    pub const fn reductions(self) -> DType {
        self.weights()
    }

    /// What losses compute and return.
    #[must_use]
    pub const fn loss(self) -> DType {
        self.weights()
    }

    /// What gradients of weights are held in: the dtype of the weights.
    #[must_use]
    pub const fn gradients(self) -> DType {
        self.weights()
    }

    /// Formats that a correct engine computes matrix products and convolutions in. TF32 is
    /// taken as truncated, the coarser of the two ways in which hardware reads operands.
    #[must_use]
    pub const fn matmul_format(self) -> FloatFormat {
        match self {
            Self::Tf32 => FloatFormat::tf32(InputRounding::Truncate),
            _ => FloatFormat::of(self.matmul()),
        }
    }

    /// The policy as a table: what is held in what, for environment records and reports.
    #[must_use]
    pub fn table(self) -> Vec<(&'static str, DType)> {
        vec![
            ("weights", self.weights()),
            ("inputs", self.inputs()),
            ("matmul", self.matmul()),
            ("activations", self.activations()),
            ("normalisation", self.normalisation()),
            ("softmax", self.softmax()),
            ("reductions", self.reductions()),
            ("loss", self.loss()),
            ("gradients", self.gradients()),
        ]
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownPrecision(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_written_the_same_way_in_json() {
        for precision in Precision::ALL {
            assert_eq!(precision.name().parse::<Precision>().unwrap(), precision);
            assert_eq!(serde_json::to_string(&precision).unwrap(), format!("\"{}\"", precision.name()));
        }
        assert!("f8".parse::<Precision>().unwrap_err().to_string().contains("amp-bf16"));
    }

    #[test]
    fn mixed_precision_holds_weights_in_f32() {
        assert_eq!(Precision::AmpF16.weights(), DType::F32);
        assert_eq!(Precision::AmpF16.matmul(), DType::F16);
        assert_eq!(Precision::AmpBf16.loss(), DType::F32);
        assert!(Precision::Tf32.matmul_format().u_in > 0.0);
        assert_eq!(Precision::F32.matmul_format().u_in, 0.0);
    }
}
