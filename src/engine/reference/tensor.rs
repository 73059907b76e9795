//! [`Tensor`]: a shared array and, where a gradient may be asked for, its place in the graph.

use std::sync::Arc;

use ndarray::{ArcArray, ArrayD, IxDyn};

use super::tape::Variable;
use crate::numerics::DType;
use crate::program::Value;
use crate::tensor::{Bytes, HostTensor, TensorError};

/// Shared floating-point values of any rank and layout.
pub(super) type Floats = ArcArray<f64, IxDyn>;

/// Shared integers (indices, labels, masks) of any rank and layout.
pub(super) type Ints = ArcArray<i64, IxDyn>;

/// Values of a tensor.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// Every float dtype.
    Float(Floats),
    /// `I64` and `U8`.
    Integer(Ints),
}

impl Data {
    /// Dimensions.
    pub(super) fn shape(&self) -> &[usize] {
        match self {
            Self::Float(values) => values.shape(),
            Self::Integer(values) => values.shape(),
        }
    }
}

/// A value of the reference engine; cloning shares its storage.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub(super) data: Data,
    /// `F64` for all floats, otherwise the program's integer dtype.
    pub(super) dtype: DType,
    pub(super) variable: Option<Arc<Variable>>,
}

impl Tensor {
    /// Shape and dtype.
    #[must_use]
    pub fn value(&self) -> Value {
        Value { shape: self.data.shape().to_vec(), dtype: self.dtype }
    }

    /// Widens a host tensor; floats become f64 without rounding.
    pub(super) fn from_host(host: &HostTensor, variable: Option<Arc<Variable>>) -> Result<Self, String> {
        let shape = IxDyn(host.shape());
        let misfit = |e: ndarray::ShapeError| e.to_string();
        if host.dtype().is_float() {
            let values = ArrayD::from_shape_vec(shape, host.to_f64()).map_err(misfit)?;
            Ok(Self { data: Data::Float(values.into_shared()), dtype: DType::F64, variable })
        } else {
            let values = ArrayD::from_shape_vec(shape, host.to_i64()).map_err(misfit)?;
            Ok(Self { data: Data::Integer(values.into_shared()), dtype: host.dtype(), variable: None })
        }
    }

    /// Row-major copy for the host: `F64`, or the integer dtype.
    pub(super) fn to_host(&self) -> Result<HostTensor, TensorError> {
        let shape = self.data.shape().to_vec();
        match &self.data {
            Data::Float(values) => {
                let mut bytes = Vec::with_capacity(values.len() * size_of::<f64>());
                values.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
                HostTensor::new(DType::F64, shape, Bytes::Owned(bytes.into()))
            }
            Data::Integer(values) if self.dtype == DType::I64 => {
                HostTensor::from_i64(shape, &values.iter().copied().collect::<Vec<_>>())
            }
            Data::Integer(values) => {
                HostTensor::from_f64(self.dtype, shape, &values.iter().map(|v| *v as f64).collect::<Vec<_>>())
            }
        }
    }
}
