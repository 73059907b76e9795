//! Shape and dtype of every operator's results.
//!
//! One function a family; each takes the operator's attributes and the types of its
//! inputs, and answers with the types of its outputs or a reason in words.

mod conv;
mod index;
mod linalg;
mod loss;
mod norm;
mod pointwise;
mod reduce;
mod shape;

pub(crate) use shape::slice_bounds;

use super::{Op, Value};
use crate::numerics::DType;

/// An operator does not accept these inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: {reason}")]
pub struct InferError {
    /// The node (or the operator, outside a program).
    pub node: String,
    /// What is wrong, with the shapes.
    pub reason: String,
}

impl InferError {
    /// The same error under the name of a node.
    #[must_use]
    pub fn at(self, node: String) -> Self {
        Self { node, ..self }
    }
}

/// Reason in words; becomes an [`InferError`].
type Reason<T> = Result<T, String>;

/// Types of the results of `op` on inputs of these types.
///
/// # Errors
/// If number, shapes or dtypes of the inputs do not fit the operator.
pub fn infer(op: &Op, inputs: &[&Value]) -> Result<Vec<Value>, InferError> {
    dispatch(op, inputs).map_err(|reason| InferError { node: op.name().to_owned(), reason })
}

fn dispatch(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    use Op::*;
    match op {
        Mm {}
        | Bmm {}
        | Matmul {}
        | Addmm { .. }
        | Baddbmm { .. }
        | Linear {}
        | ScaledDotProductAttention { .. } => linalg::infer(op, x),
        Conv1d { .. }
        | Conv2d { .. }
        | ConvTranspose1d { .. }
        | ConvTranspose2d { .. }
        | MaxPool2d { .. }
        | AvgPool2d { .. }
        | AdaptiveAvgPool2d { .. }
        | UpsampleNearest2d { .. }
        | UpsampleBilinear2d { .. } => conv::infer(op, x),
        LayerNorm { .. } | RmsNorm { .. } | GroupNorm { .. } | BatchNorm { .. } => norm::infer(op, x),
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
        | MulScalar { .. }
        | Add {}
        | Sub {}
        | Mul {}
        | Div {}
        | Maximum {}
        | Minimum {}
        | Softmax { .. }
        | LogSoftmax { .. }
        | Cumsum { .. }
        | Cast { .. }
        | Dropout { .. } => pointwise::infer(op, x),
        Sum { .. }
        | Mean { .. }
        | Var { .. }
        | Amax { .. }
        | Amin { .. }
        | Logsumexp { .. }
        | Argmax { .. }
        | Topk { .. }
        | Sort { .. } => reduce::infer(op, x),
        Embedding {}
        | IndexSelect { .. }
        | Gather { .. }
        | ScatterAdd { .. }
        | IndexPut { .. }
        | Where {}
        | MaskedFill { .. } => index::infer(op, x),
        Reshape { .. }
        | Permute { .. }
        | Expand { .. }
        | Slice { .. }
        | Select { .. }
        | Cat { .. }
        | Stack { .. }
        | Split { .. }
        | Pad { .. }
        | Roll { .. }
        | Flip { .. }
        | RepeatInterleave { .. } => shape::infer(op, x),
        CrossEntropy { .. }
        | NllLoss { .. }
        | MseLoss { .. }
        | L1Loss { .. }
        | SmoothL1Loss { .. }
        | BceWithLogits { .. }
        | KlDiv { .. } => loss::infer(op, x),
    }
}

/// One result.
#[expect(clippy::unnecessary_wraps, reason = "every family ends in it, as its answer")]
fn one(shape: Vec<usize>, dtype: DType) -> Reason<Vec<Value>> {
    Ok(vec![Value { shape, dtype }])
}

/// Exactly `N` inputs.
fn exactly<'a, const N: usize>(x: &[&'a Value]) -> Reason<[&'a Value; N]> {
    <[&Value; N]>::try_from(x).map_err(|_| format!("takes {N} inputs, {} were given", x.len()))
}

/// `N` inputs and possibly one more.
fn with_optional<'a, const N: usize>(x: &[&'a Value]) -> Reason<([&'a Value; N], Option<&'a Value>)> {
    match x.split_at_checked(N) {
        Some((first, rest)) if rest.len() <= 1 => Ok((exactly(first)?, rest.first().copied())),
        _ => Err(format!("takes {N} or {} inputs, {} were given", N + 1, x.len())),
    }
}

/// All inputs are of one float dtype, which is returned.
fn same_float(x: &[&Value]) -> Reason<DType> {
    let first = x.first().map(|v| v.dtype).ok_or("takes at least one input")?;
    if !first.is_float() {
        return Err(format!("needs floating-point inputs, got {first}"));
    }
    match x.iter().find(|v| v.dtype != first) {
        Some(other) => Err(format!("inputs must share one dtype, got {first} and {}", other.dtype)),
        None => Ok(first),
    }
}

/// The input has this dtype.
fn is_dtype(value: &Value, dtype: DType, what: &str) -> Reason<()> {
    if value.dtype == dtype { Ok(()) } else { Err(format!("{what} must be {dtype}, it is {}", value.dtype)) }
}

/// The input has this rank.
fn is_rank(value: &Value, rank: usize, what: &str) -> Reason<()> {
    if value.shape.len() == rank {
        Ok(())
    } else {
        Err(format!("{what} must have {rank} dimensions, it is {:?}", value.shape))
    }
}

/// The input has this shape.
fn is_shape(value: &Value, shape: &[usize], what: &str) -> Reason<()> {
    if value.shape == shape {
        Ok(())
    } else {
        Err(format!("{what} must have shape {shape:?}, it is {:?}", value.shape))
    }
}
