//! What each precision computes in: the `[format.*]` tables.

use std::collections::BTreeMap;

use crate::numerics::{DType, FloatFormat, InputRounding};
use crate::precision::Precision;

/// Names of the formats, which are the dtypes and tf32.
pub(super) const FORMATS: [&str; 5] = ["f64", "f32", "tf32", "f16", "bf16"];

/// Formats by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Formats(pub(super) BTreeMap<&'static str, FloatFormat>);

impl Formats {
    /// What `numerics` knows about the dtypes; tf32 with truncated operands.
    pub(super) fn known() -> Self {
        let of = |name| match name {
            "f64" => FloatFormat::of(DType::F64),
            "tf32" => FloatFormat::tf32(InputRounding::Truncate),
            "f16" => FloatFormat::of(DType::F16),
            "bf16" => FloatFormat::of(DType::BF16),
            _ => FloatFormat::of(DType::F32),
        };
        Self(FORMATS.map(|name| (name, of(name))).into())
    }

    /// Format of values that a target of this precision holds in `dtype`. Matrix products
    /// of tf32 have their own; integers are exact.
    #[must_use]
    pub fn of(&self, dtype: DType) -> FloatFormat {
        self.0.get(dtype.name()).copied().unwrap_or_else(|| FloatFormat::of(dtype))
    }

    /// Format in which matrix products, convolutions and attention compute.
    #[must_use]
    pub fn of_matmul(&self, precision: Precision) -> FloatFormat {
        match precision {
            Precision::Tf32 => {
                let known = || FloatFormat::tf32(InputRounding::Truncate);
                self.0.get("tf32").copied().unwrap_or_else(known)
            }
            _ => self.of(precision.matmul()),
        }
    }

    /// Absolute floor of a tensor whose values may underflow: half the smallest subnormal
    /// for each of its elements, as a norm. Gradients in f16 need it: 6e-8 is its smallest
    /// positive value.
    #[must_use]
    pub fn underflow_floor(&self, dtype: DType, elements: usize) -> f64 {
        self.of(dtype).underflow / 2.0 * (elements as f64).sqrt()
    }
}
