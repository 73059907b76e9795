//! [`HostTensor`]: construction, element access and portable casts.

use std::ops::{Deref, Range};
use std::sync::Arc;

use half::{bf16, f16};
use memmap2::Mmap;

use crate::numerics::DType;

/// Owned or file-mapped bytes; cloning shares them.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// Bytes in memory.
    Owned(Arc<[u8]>),
    /// A range of a mapped file.
    Mapped(Arc<Mmap>, Range<usize>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Mapped(map, range) => map.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// Bytes, shape and dtype of a tensor in host memory.
#[derive(Clone, Debug)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Bytes,
}

/// A tensor could not be made from what was given.
#[derive(Debug, thiserror::Error)]
pub enum TensorError {
    /// Byte length and shape disagree.
    #[error("shape {shape:?} in {dtype} needs {expected} bytes, {found} were given")]
    Length {
        /// Declared shape.
        shape: Vec<usize>,
        /// Declared dtype.
        dtype: DType,
        /// Bytes the shape needs.
        expected: usize,
        /// Bytes that were there.
        found: usize,
    },
    /// The product of the dimensions does not fit in memory.
    #[error("shape {0:?} has more elements than this machine can address")]
    TooLarge(Vec<usize>),
}

impl HostTensor {
    /// A tensor over existing bytes.
    ///
    /// # Errors
    /// If the number of bytes is not what shape and dtype need.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: Bytes) -> Result<Self, TensorError> {
        let expected = byte_length(dtype, &shape)?;
        let found = bytes.len();
        if expected == found {
            Ok(Self { dtype, shape, bytes })
        } else {
            Err(TensorError::Length { shape, dtype, expected, found })
        }
    }

    /// A tensor of `dtype` from f64 values, rounded to nearest even once.
    ///
    /// # Errors
    /// If the number of values is not the number of elements of `shape`.
    pub fn from_f64(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Result<Self, TensorError> {
        let bytes: Vec<u8> = match dtype {
            DType::F64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is the purpose")]
            DType::F32 => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
            DType::F16 => values.iter().flat_map(|v| f64_to_f16(*v).to_le_bytes()).collect(),
            DType::BF16 => values.iter().flat_map(|v| f64_to_bf16(*v).to_le_bytes()).collect(),
            #[expect(clippy::cast_possible_truncation, reason = "saturating by definition of `as`")]
            DType::I64 => values.iter().flat_map(|v| (*v as i64).to_le_bytes()).collect(),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturating by definition of `as`"
            )]
            DType::U8 => values.iter().map(|v| *v as u8).collect(),
        };
        Self::new(dtype, shape, Bytes::Owned(bytes.into()))
    }

    /// An `I64` tensor.
    ///
    /// # Errors
    /// If the number of values is not the number of elements of `shape`.
    pub fn from_i64(shape: Vec<usize>, values: &[i64]) -> Result<Self, TensorError> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::new(DType::I64, shape, Bytes::Owned(bytes.into()))
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, outermost first; empty for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements; 1 for a scalar.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Row-major little-endian bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All values widened to f64 (exact for every float dtype and U8; I64 beyond 2^53 rounds).
    #[must_use]
    pub fn to_f64(&self) -> Vec<f64> {
        match self.dtype {
            DType::F64 => self.words().map(f64::from_le_bytes).collect(),
            DType::F32 => self.words().map(|w| f64::from(f32::from_le_bytes(w))).collect(),
            DType::F16 => self.words().map(|w| f64::from(f16::from_le_bytes(w))).collect(),
            DType::BF16 => self.words().map(|w| f64::from(bf16::from_le_bytes(w))).collect(),
            DType::I64 => self.words().map(|w| i64::from_le_bytes(w) as f64).collect(),
            DType::U8 => self.bytes.iter().map(|b| f64::from(*b)).collect(),
        }
    }

    /// All values as i64; floats are truncated towards zero.
    #[must_use]
    pub fn to_i64(&self) -> Vec<i64> {
        match self.dtype {
            DType::I64 => self.words().map(i64::from_le_bytes).collect(),
            DType::U8 => self.bytes.iter().map(|b| i64::from(*b)).collect(),
            #[expect(clippy::cast_possible_truncation, reason = "documented: truncation")]
            _ => self.to_f64().into_iter().map(|v| v as i64).collect(),
        }
    }

    /// The same values in another dtype, rounded to nearest even directly from the
    /// source value (no double rounding). The same dtype shares the bytes.
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Self {
        if dtype == self.dtype {
            return self.clone();
        }
        Self::from_f64(dtype, self.shape.clone(), &self.to_f64())
            .unwrap_or_else(|_| unreachable!("a cast keeps the number of elements"))
    }

    /// The same bytes under another shape.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn reshape(&self, shape: Vec<usize>) -> Result<Self, TensorError> {
        Self::new(self.dtype, shape, self.bytes.clone())
    }

    fn words<const N: usize>(&self) -> impl Iterator<Item = [u8; N]> {
        self.bytes.as_chunks::<N>().0.iter().copied()
    }
}

/// Bytes that `shape` needs in `dtype`, or the reason why none can be given.
fn byte_length(dtype: DType, shape: &[usize]) -> Result<usize, TensorError> {
    shape
        .iter()
        .try_fold(dtype.size(), |product, dim| product.checked_mul(*dim))
        .ok_or_else(|| TensorError::TooLarge(shape.to_vec()))
}

/// Round to nearest even from f64 straight to f16, without passing through f32.
fn f64_to_f16(value: f64) -> f16 {
    round_once(value, 11, -14, 65504.0, f16::from_f64)
}

/// Round to nearest even from f64 straight to bf16, without passing through f32.
fn f64_to_bf16(value: f64) -> bf16 {
    round_once(value, 8, -126, 3.389_531_389_251_535_5e38, bf16::from_f64)
}

/// Rounds in f64 first (adding and subtracting a power of two leaves exactly the wanted
/// bits), so that the conversion that follows is exact whatever route it takes.
fn round_once<T>(value: f64, precision: i32, min_exponent: i32, max: f64, exact: impl Fn(f64) -> T) -> T {
    if !value.is_finite() || value == 0.0 {
        return exact(value);
    }
    let biased = i32::try_from((value.to_bits() >> 52) & 0x7ff).unwrap_or(0);
    let exponent = (biased - 1023).max(min_exponent);
    let step = 2f64.powi(exponent - precision + 1);
    let scaled = value / step;
    let rounded = scaled.round_ties_even() * step;
    // Half a step above the largest finite value rounds to infinity (IEEE 754, 4.3.1).
    if rounded.abs() > max { exact(f64::INFINITY.copysign(value)) } else { exact(rounded) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_round_once_to_nearest_even() {
        // Just above the midpoint of two bf16 values, but rounding to f32 first lands on
        // the midpoint: double rounding would go down to the even neighbour.
        let value = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        let t = HostTensor::from_f64(DType::BF16, vec![1], &[value]).unwrap();
        assert_eq!(t.to_f64(), [1.0 + 2f64.powi(-7)]);
        let value = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        let t = HostTensor::from_f64(DType::F16, vec![1], &[value]).unwrap();
        assert_eq!(t.to_f64(), [1.0 + 2f64.powi(-10)]);
    }

    #[test]
    fn casts_keep_special_values() {
        let values = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 65519.0, 65520.0, 6e-8, 1e-9];
        let t = HostTensor::from_f64(DType::F16, vec![9], &values).unwrap().to_f64();
        assert!(t[1].is_sign_negative() && t[1] == 0.0);
        assert_eq!((t[2], t[3]), (f64::INFINITY, f64::NEG_INFINITY));
        assert!(t[4].is_nan());
        assert_eq!((t[5], t[6]), (65504.0, f64::INFINITY));
        assert_eq!((t[7], t[8]), (2f64.powi(-24), 0.0));
    }

    #[test]
    fn every_half_value_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let x = f16::from_bits(bits);
            let y = f64_to_f16(f64::from(x));
            assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(), "{bits:#x}");
            let x = bf16::from_bits(bits);
            let y = f64_to_bf16(f64::from(x));
            assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn a_wrong_length_is_an_error() {
        assert!(HostTensor::new(DType::F32, vec![2], Bytes::Owned(vec![0; 7].into())).is_err());
        assert!(HostTensor::new(DType::F32, vec![usize::MAX, 2], Bytes::Owned(vec![].into())).is_err());
    }
}
