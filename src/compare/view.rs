//! [`Pair`]: what is compared, with the reference named.

use serde::Serialize;

use super::statistics::{self, Statistics};
use crate::numerics::DType;
use crate::tensor::{HostTensor, TensorError};

/// A tensor as the comparison sees it: row-major little-endian bytes of any origin
/// (mapped, owned), at any alignment.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    dtype: DType,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A view of bytes.
    ///
    /// # Errors
    /// If the number of bytes is not what shape and dtype need.
    pub fn new(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> Result<Self, TensorError> {
        let expected = shape
            .iter()
            .try_fold(dtype.size(), |product, dim| product.checked_mul(*dim))
            .ok_or_else(|| TensorError::TooLarge(shape.to_vec()))?;
        if expected == bytes.len() {
            Ok(Self { dtype, shape, bytes })
        } else {
            Err(TensorError::Length { shape: shape.to_vec(), dtype, expected, found: bytes.len() })
        }
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, outermost first.
    #[must_use]
    pub const fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Row-major little-endian bytes.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of elements; 1 for a scalar.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }
}

impl<'a> From<&'a HostTensor> for TensorView<'a> {
    fn from(tensor: &'a HostTensor) -> Self {
        Self { dtype: tensor.dtype(), shape: tensor.shape(), bytes: tensor.bytes() }
    }
}

/// Two tensors of the same quantity.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// What is judged.
    pub candidate: TensorView<'a>,
    /// What it is judged against.
    pub reference: TensorView<'a>,
}

/// Two tensors whose values cannot be set against each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "structural", rename_all = "snake_case")]
pub enum Structural {
    /// Different shapes. Nothing is broadcast, cut or reshaped.
    Shape {
        /// Shape of the candidate.
        candidate: Vec<usize>,
        /// Shape of the reference.
        reference: Vec<usize>,
    },
    /// Floats against integers. Nothing is cast.
    DTypeClass {
        /// Dtype of the candidate.
        candidate: DType,
        /// Dtype of the reference.
        reference: DType,
    },
    /// The candidate was recorded in another dtype than its precision asks for.
    DType {
        /// Dtype of the candidate.
        candidate: DType,
        /// Dtype that the plan expects of it.
        expected: DType,
    },
}

impl std::fmt::Display for Structural {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shape { candidate, reference } => {
                write!(f, "shape {candidate:?} against {reference:?} of the reference")
            }
            Self::DTypeClass { candidate, reference } => {
                write!(f, "{candidate} against {reference} of the reference: one rounds, the other does not")
            }
            Self::DType { candidate, expected } => write!(f, "recorded in {candidate}, expected {expected}"),
        }
    }
}

/// What comparing two tensors gave. A mismatch is data, not an error.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// The values cannot be set against each other.
    Structural(Structural),
    /// Both have no elements: nothing was compared, which is not agreement.
    Empty,
    /// What the pass over the values measured.
    Statistics(Box<Statistics>),
}

impl Pair<'_> {
    /// Compares structure, then values. Runs on the current rayon pool; the result does
    /// not depend on the number of threads. Memory is bounded, whatever the size.
    #[must_use]
    pub fn compare(&self) -> Comparison {
        let Self { candidate, reference } = self;
        if candidate.dtype.is_float() != reference.dtype.is_float() {
            return Comparison::Structural(Structural::DTypeClass {
                candidate: candidate.dtype,
                reference: reference.dtype,
            });
        }
        if candidate.shape != reference.shape {
            return Comparison::Structural(Structural::Shape {
                candidate: candidate.shape.to_vec(),
                reference: reference.shape.to_vec(),
            });
        }
        if candidate.elements() == 0 {
            return Comparison::Empty;
        }
        Comparison::Statistics(Box::new(statistics::measure(self)))
    }

    /// As [`Pair::compare`], and the candidate must have been recorded in `expected`.
    #[must_use]
    pub fn compare_as(&self, expected: DType) -> Comparison {
        if self.candidate.dtype == expected {
            self.compare()
        } else {
            let candidate = self.candidate.dtype;
            Comparison::Structural(Structural::DType { candidate, expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: DType, shape: &[usize]) -> HostTensor {
        let n = shape.iter().product();
        HostTensor::from_f64(dtype, shape.to_vec(), &vec![1.0; n]).unwrap()
    }

    fn compare(candidate: &HostTensor, reference: &HostTensor) -> Comparison {
        Pair { candidate: candidate.into(), reference: reference.into() }.compare()
    }

    #[test]
    fn a_shape_difference_is_a_verdict_even_where_the_bytes_agree() {
        let (a, b) = (tensor(DType::F32, &[2, 3]), tensor(DType::F32, &[3, 2]));
        assert!(matches!(compare(&a, &b), Comparison::Structural(Structural::Shape { .. })));
    }

    #[test]
    fn a_longer_candidate_is_not_cut_to_the_reference() {
        let (a, b) = (tensor(DType::F32, &[7]), tensor(DType::F32, &[6]));
        assert!(matches!(compare(&a, &b), Comparison::Structural(Structural::Shape { .. })));
    }

    #[test]
    fn floats_are_not_compared_with_integers() {
        let (a, b) = (tensor(DType::I64, &[2]), tensor(DType::F64, &[2]));
        assert!(matches!(compare(&a, &b), Comparison::Structural(Structural::DTypeClass { .. })));
    }

    #[test]
    fn an_unexpected_dtype_is_a_verdict() {
        let (a, b) = (tensor(DType::F16, &[2]), tensor(DType::F64, &[2]));
        let pair = Pair { candidate: (&a).into(), reference: (&b).into() };
        assert!(matches!(
            pair.compare_as(DType::F32),
            Comparison::Structural(Structural::DType { candidate: DType::F16, expected: DType::F32 })
        ));
        assert!(matches!(pair.compare_as(DType::F16), Comparison::Statistics(_)));
    }

    #[test]
    fn nothing_compared_is_not_agreement() {
        let (a, b) = (tensor(DType::F32, &[0, 3]), tensor(DType::F64, &[0, 3]));
        assert_eq!(compare(&a, &b), Comparison::Empty);
    }

    #[test]
    fn a_view_of_the_wrong_length_is_refused() {
        assert!(TensorView::new(DType::F32, &[2], &[0; 7]).is_err());
        assert!(TensorView::new(DType::F32, &[usize::MAX, 2], &[]).is_err());
    }
}
