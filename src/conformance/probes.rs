//! Probes without a tolerance, and the mode that a target really computes in.
//!
//! *Exact.* On inputs −1, 0 and 1 every partial sum of a linear operator is a small integer:
//! all correct kernels agree bit for bit, in any order and with any accumulator. What differs
//! is wrong; only transform convolutions (Winograd, FFT) may be off by a little, and are
//! recognised by that.
//!
//! *Mode.* On inputs of full precision a long sum shows the width of its accumulator, and a
//! product the format in which its operands were read: the exact result of the operands
//! rounded (or truncated) to TF32, bf16 or f16 is compared with what the target delivered. A
//! mode that is not the declared one is a fault, however small its effect.

use std::fmt;

use super::floor::{Expected, Rounding, local};
use super::judge::{Bands, judge};
use crate::engine::EngineError;
use crate::numerics::{DType, FloatFormat, InputRounding, Role};
use crate::program::Op;
use crate::tensor::HostTensor;

/// Whether all partial sums are integers on integer inputs.
#[must_use]
pub const fn is_exact_on_integers(op: &Op) -> bool {
    use Op::*;
    match op {
        Sum { .. }
        | Cumsum { .. }
        | Add {}
        | Sub {}
        | Mul {}
        | Neg {}
        | ScatterAdd { .. }
        | IndexPut { .. }
        | Embedding {}
        | IndexSelect { .. }
        | Gather { .. }
        | Where {}
        | Reshape { .. }
        | Permute { .. }
        | Expand { .. }
        | Slice { .. }
        | Select { .. }
        | Cat { .. }
        | Stack { .. }
        | Split { .. }
        | Roll { .. }
        | Flip { .. }
        | RepeatInterleave { .. }
        | UpsampleNearest2d { .. } => true,
        Addmm { beta, alpha } | Baddbmm { beta, alpha } => *beta == 1.0 && *alpha == 1.0,
        _ => matches!(op.role(), Role::Matmul | Role::Conv),
    }
}

/// Format in which the operands of a product are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// As they are.
    Own,
    /// 11 significant bits, rounded to nearest.
    Tf32Rounded,
    /// 11 significant bits, truncated.
    Tf32Truncated,
    /// 8 significant bits, rounded to nearest.
    Bf16Rounded,
    /// 8 significant bits, truncated.
    Bf16Truncated,
}

impl Operands {
    const NARROW: [Self; 4] =
        [Self::Tf32Rounded, Self::Tf32Truncated, Self::Bf16Rounded, Self::Bf16Truncated];

    /// The value as it is read.
    #[must_use]
    pub fn read(self, v: f64) -> f64 {
        let (bits, truncate) = match self {
            Self::Own => return v,
            Self::Tf32Rounded => (11, false),
            Self::Tf32Truncated => (11, true),
            Self::Bf16Rounded => (8, false),
            Self::Bf16Truncated => (8, true),
        };
        if v == 0.0 || !v.is_finite() {
            return v;
        }
        // All probes are far from under- and overflow.
        let dropped = 53 - bits;
        let mask = (1u64 << dropped) - 1;
        let raw = v.to_bits();
        let half = 1u64 << (dropped - 1);
        let (kept, rest) = (raw & !mask, raw & mask);
        let up = !truncate && (rest > half || rest == half && kept >> dropped & 1 == 1);
        f64::from_bits(if up { kept + mask + 1 } else { kept })
    }
}

/// Mode that a target computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Dtype of the tensors.
    pub dtype: DType,
    /// How operands are read.
    pub operands: Operands,
    /// Width of the accumulator; `None`: no known one explains the result.
    pub accumulator: Option<DType>,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operands {
            Operands::Own => write!(f, "{} operands", self.dtype)?,
            Operands::Tf32Rounded => f.write_str("TF32 operands (rounded)")?,
            Operands::Tf32Truncated => f.write_str("TF32 operands (truncated)")?,
            Operands::Bf16Rounded => f.write_str("bf16 operands (rounded)")?,
            Operands::Bf16Truncated => f.write_str("bf16 operands (truncated)")?,
        }
        match self.accumulator {
            Some(dtype) => write!(f, ", {dtype} accumulator"),
            None => f.write_str(", unknown accumulator"),
        }
    }
}

impl Mode {
    /// Whether this is what `format` declares. An accumulator wider than declared is no fault.
    #[must_use]
    pub fn fits(&self, format: &FloatFormat) -> bool {
        let operands = match (self.operands, format.input_rounding) {
            (Operands::Own, _) => true,
            // Declared as TF32: either rounding.
            (Operands::Tf32Rounded | Operands::Tf32Truncated, rounding) => rounding != InputRounding::Exact,
            _ => false,
        };
        operands && self.accumulator.is_some_and(|dtype| dtype.unit_roundoff() <= format.u_acc)
    }
}

/// The mode that explains what `op` delivered: the first of operand formats, widest first,
/// and the widest accumulator, within the band that passes.
///
/// # Errors
/// What the reference says of the arguments.
pub fn identify(
    op: &Op,
    inputs: &[HostTensor],
    found: &HostTensor,
    rounding: &Rounding<'_>,
    bands: &dyn Bands,
) -> Result<Mode, EngineError> {
    let dtype = found.dtype();
    let product = matches!(op.role(), Role::Matmul | Role::Conv);
    let candidates: &[Operands] = if product && dtype == DType::F32 { &Operands::NARROW } else { &[] };
    for operands in std::iter::once(&Operands::Own).chain(candidates) {
        let read = |t: &HostTensor| {
            let values: Vec<f64> = t.to_f64().iter().map(|v| operands.read(*v)).collect();
            HostTensor::from_f64(t.dtype(), t.shape().to_vec(), &values)
        };
        let inputs: Result<Vec<HostTensor>, _> = inputs.iter().map(read).collect();
        let Ok(inputs) = inputs else { continue };
        for accumulator in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let narrow = accumulator.unit_roundoff() > dtype.unit_roundoff();
            // Behind results of 16 bits an accumulator wider than f32 looks like f32.
            let hidden = accumulator == DType::F64 && matches!(dtype, DType::F16 | DType::BF16);
            if narrow || hidden {
                continue;
            }
            let formats = |dtype: DType, role: Role| FloatFormat {
                u_acc: accumulator.unit_roundoff(),
                u_in: 0.0,
                input_rounding: InputRounding::Exact,
                ..(rounding.formats)(dtype, role)
            };
            let hypothesis = Rounding { formats: &formats, ..*rounding };
            let expected = local(op, &inputs, &[], &hypothesis)?;
            if expected.results.first().is_some_and(|expected| explains(expected, found, bands)) {
                return Ok(Mode { dtype, operands: *operands, accumulator: Some(accumulator) });
            }
        }
    }
    Ok(Mode { dtype, operands: Operands::Own, accumulator: None })
}

fn explains(expected: &Expected, found: &HostTensor, bands: &dyn Bands) -> bool {
    let judgement = judge(expected, found, bands);
    judgement.fault.is_none() && !judgement.close
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_rounded_or_truncated() {
        let v = 1.0 + 1.5 / 1024.0;
        assert_eq!(Operands::Tf32Rounded.read(v), 1.0 + 2.0 / 1024.0);
        assert_eq!(Operands::Tf32Truncated.read(v), 1.0 + 1.0 / 1024.0);
        assert_eq!(Operands::Bf16Rounded.read(-v), -1.0);
        assert_eq!(Operands::Bf16Rounded.read(1.0 + 1.5 / 128.0), 1.0 + 2.0 / 128.0);
        assert_eq!(Operands::Own.read(v), v);
    }

    #[test]
    fn a_mode_fits_what_is_declared() {
        let mode = |operands, accumulator| Mode { dtype: DType::F32, operands, accumulator };
        let f32 = FloatFormat::of(DType::F32);
        let tf32 = FloatFormat::tf32(InputRounding::Truncate);
        assert!(mode(Operands::Own, Some(DType::F32)).fits(&f32));
        assert!(mode(Operands::Own, Some(DType::F64)).fits(&f32));
        assert!(!mode(Operands::Own, None).fits(&f32));
        assert!(!mode(Operands::Tf32Rounded, Some(DType::F32)).fits(&f32));
        assert!(mode(Operands::Tf32Rounded, Some(DType::F32)).fits(&tf32));
        assert!(!mode(Operands::Bf16Rounded, Some(DType::F32)).fits(&tf32));
        let half = Mode { dtype: DType::F16, operands: Operands::Own, accumulator: Some(DType::F16) };
        assert!(!half.fits(&FloatFormat::of(DType::F16)));
        assert_eq!(half.to_string(), "f16 operands, f16 accumulator");
    }
}
