//! What the rounding of one result or gradient is relative to: dispatch over families.

use super::evaluate::Levels;
use super::{attention, linear, loss, norm, pointwise, softmax};
use crate::engine::EngineError;
use crate::numerics::{DType, Role};
use crate::program::{Op, Value};
use crate::tensor::HostTensor;

/// A tensor widened to f64.
#[derive(Clone, Debug)]
pub(super) struct Values {
    /// `F64` for floats, otherwise the integer dtype.
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Values {
    pub fn of(host: &HostTensor) -> Self {
        let dtype = if host.dtype().is_float() { DType::F64 } else { host.dtype() };
        Self { dtype, shape: host.shape().to_vec(), data: host.to_f64() }
    }

    pub fn host(&self) -> Result<HostTensor, EngineError> {
        HostTensor::from_f64(self.dtype, self.shape.clone(), &self.data).map_err(|e| EngineError::Failed {
            engine: "reference".to_owned(),
            op: "upload".to_owned(),
            message: e.to_string(),
        })
    }

    /// The same shape with every float mapped; integers stay.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        if !self.dtype.is_float() {
            return self.clone();
        }
        Self { data: self.data.iter().map(|v| f(*v)).collect(), ..self.clone() }
    }

    pub fn squares(&self) -> Self {
        self.map(|v| v * v)
    }
}

/// One call with its exact results.
pub(super) struct Site<'a> {
    pub op: &'a Op,
    pub types: &'a [&'a Value],
    pub outputs: &'a [&'a Value],
    pub inputs: &'a [Values],
    pub results: &'a [Values],
    pub incoming: &'a [Option<Values>],
}

impl Site<'_> {
    /// Values of an input; empty when there is none.
    pub fn input(&self, index: usize) -> &[f64] {
        self.inputs.get(index).map_or(&[], |v| v.data.as_slice())
    }

    pub fn shape(&self, index: usize) -> &[usize] {
        self.inputs.get(index).map_or(&[], |v| v.shape.as_slice())
    }

    pub fn result(&self, index: usize) -> &[f64] {
        self.results.get(index).map_or(&[], |v| v.data.as_slice())
    }

    /// The incoming gradient of the first result; empty when there is none.
    pub fn cotangent(&self) -> &[f64] {
        self.incoming.first().and_then(Option::as_ref).map_or(&[], |v| v.data.as_slice())
    }
}

/// Magnitudes of one result, element by element. What is missing counts as 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    /// Root of the sum of the squares of the terms; the value itself where it is larger.
    pub terms: Vec<f64>,
    /// Sensitivity to the rounding of a stored result.
    pub saved: Vec<f64>,
    /// Standard deviation from elsewhere, absolute.
    pub extra: Vec<f64>,
}

impl Spread {
    pub fn terms(terms: Vec<f64>) -> Self {
        Self { terms, ..Self::default() }
    }
}

/// Of result `index`.
pub(super) fn forward(site: &Site<'_>, index: usize) -> Result<Spread, EngineError> {
    use Op::*;
    Ok(match site.op {
        Softmax { .. } | LogSoftmax { .. } | Logsumexp { .. } | Var { .. } => softmax::forward(site),
        op if op.role() == Role::Normalisation => norm::forward(site, index),
        ScaledDotProductAttention { is_causal, scale } => attention::forward(site, *is_causal, *scale),
        op if op.role() == Role::Loss => loss::forward(site),
        Gelu { .. } => pointwise::forward(site),
        _ => linear::forward(site)?,
    })
}

/// Of the gradient of input `index`, whose exact value is `gradient`.
pub(super) fn backward(
    site: &Site<'_>,
    index: usize,
    gradient: &Values,
    levels: &Levels<'_>,
) -> Result<Spread, EngineError> {
    use Op::*;
    Ok(match site.op {
        Softmax { .. } | LogSoftmax { .. } | Logsumexp { .. } | Var { .. } => softmax::backward(site),
        op if op.role() == Role::Normalisation => norm::backward(site, index, levels),
        ScaledDotProductAttention { is_causal, scale } => {
            attention::backward(site, index, *is_causal, *scale)
        }
        op if op.role() == Role::Loss => loss::backward(site, index),
        Relu {}
        | Gelu { .. }
        | Silu {}
        | Sigmoid {}
        | Tanh {}
        | Softplus { .. }
        | LeakyRelu { .. }
        | Hardswish {}
        | Exp {}
        | Log {}
        | Sqrt {}
        | Rsqrt {}
        | Reciprocal {}
        | Erf {}
        | Sin {}
        | Cos {}
        | Abs {}
        | Neg {}
        | PowScalar { .. }
        | Clamp { .. }
        | AddScalar { .. }
        | MulScalar { .. } => pointwise::backward(site),
        _ => linear::backward(site, index, gradient)?,
    })
}
