//! A policy as conformance asks for it.

use crate::conformance::{Bands, Multiples};
use crate::numerics::{DType, FloatFormat, Role};
use crate::precision::Precision;
use crate::tolerance::{Policy, Quantity, QuantityDescription, Scope};

/// The isolated bands of one policy.
#[derive(Debug)]
pub struct PolicyBands<'a> {
    pub policy: &'a Policy,
    /// Tensors over which the false-alarm target is shared.
    pub tensors: usize,
}

impl Bands for PolicyBands<'_> {
    fn isolated(&self, role: Role, dtype: DType) -> Multiples {
        let band = self.policy.band_for(&QuantityDescription {
            name: "operator".to_owned(),
            quantity: Quantity::Activation,
            role,
            precision: precision(dtype),
            scope: Scope::Isolated,
        });
        // Reading a policy refuses gaps; should there be one, nothing may pass by it.
        band.map_or(Multiples { pass: 0.0, fail: 0.0 }, |band| Multiples { pass: band.pass, fail: band.fail })
    }

    fn tail(&self) -> f64 {
        self.policy.run.tail(self.tensors)
    }
}

/// Formats that a target computes in: those of the dtype, but TF32 operands where it was
/// asked for.
pub fn formats(policy: &Policy, tf32: bool) -> impl Fn(DType, Role) -> FloatFormat {
    move |dtype, role| match (tf32, dtype, role) {
        (true, DType::F32, Role::Matmul | Role::Conv | Role::Attention) => {
            policy.formats.of_matmul(Precision::Tf32)
        }
        _ => policy.formats.of(dtype),
    }
}

const fn precision(dtype: DType) -> Precision {
    match dtype {
        DType::F64 => Precision::F64,
        DType::F16 => Precision::F16,
        DType::BF16 => Precision::Bf16,
        _ => Precision::F32,
    }
}
