//! Each operator of the program set as the libtorch function that its users call.
//!
//! One file a family. Every call goes through tch's fallible functions or, where tch leaves
//! out arguments, through [`super::native`]; nothing here panics on what libtorch reports.

mod conv;
mod index;
mod linalg;
mod loss;
mod norm;
mod pointwise;
mod reduce;
mod shape;

use tch::{TchError, Tensor};

use super::native::NativeError;
use crate::program::Op;

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpError {
    /// libtorch through tch.
    #[error("{}", first_lines(.0))]
    Torch(#[from] TchError),
    /// libtorch through this engine's own C++.
    #[error(transparent)]
    Native(#[from] NativeError),
    /// Number or values of arguments that a validated program cannot have.
    #[error("{0}; validate the program before running it")]
    Arguments(String),
}

/// Results of one operator.
pub(super) type Results = Result<Vec<Tensor>, OpError>;

/// Applies one operator.
pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    use Op::*;
    match op {
        Mm {}
        | Bmm {}
        | Matmul {}
        | Addmm { .. }
        | Baddbmm { .. }
        | Linear {}
        | ScaledDotProductAttention { .. } => linalg::apply(op, x),
        Conv1d { .. }
        | Conv2d { .. }
        | ConvTranspose1d { .. }
        | ConvTranspose2d { .. }
        | MaxPool2d { .. }
        | AvgPool2d { .. }
        | AdaptiveAvgPool2d { .. }
        | UpsampleNearest2d { .. }
        | UpsampleBilinear2d { .. } => conv::apply(op, x),
        LayerNorm { .. } | RmsNorm { .. } | GroupNorm { .. } | BatchNorm { .. } => norm::apply(op, x),
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
        | Dropout { .. } => pointwise::apply(op, x),
        Sum { .. }
        | Mean { .. }
        | Var { .. }
        | Amax { .. }
        | Amin { .. }
        | Logsumexp { .. }
        | Argmax { .. }
        | Topk { .. }
        | Sort { .. } => reduce::apply(op, x),
        Embedding {}
        | IndexSelect { .. }
        | Gather { .. }
        | ScatterAdd { .. }
        | IndexPut { .. }
        | Where {}
        | MaskedFill { .. } => index::apply(op, x),
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
        | RepeatInterleave { .. } => shape::apply(op, x),
        CrossEntropy { .. }
        | NllLoss { .. }
        | MseLoss { .. }
        | L1Loss { .. }
        | SmoothL1Loss { .. }
        | BceWithLogits { .. }
        | KlDiv { .. } => loss::apply(op, x),
    }
}

/// libtorch appends a C++ backtrace to its messages.
pub(super) fn first_lines(error: &TchError) -> String {
    let text = error.to_string();
    text.split("\nException raised from").next().unwrap_or(&text).trim_end().to_owned()
}

#[expect(clippy::unnecessary_wraps, reason = "what every family answers with")]
fn one(tensor: Tensor) -> Results {
    Ok(vec![tensor])
}

fn exactly<'a, const N: usize>(x: &[&'a Tensor]) -> Result<[&'a Tensor; N], OpError> {
    x.try_into().map_err(|_| OpError::Arguments(format!("takes {N} tensors, {} were given", x.len())))
}

/// The first `N` tensors and an optional last one.
fn with_optional<'a, const N: usize>(
    x: &[&'a Tensor],
) -> Result<([&'a Tensor; N], Option<&'a Tensor>), OpError> {
    match x.split_at_checked(N) {
        Some((first, rest @ ([] | [_]))) => Ok((exactly(first)?, rest.first().copied())),
        _ => Err(OpError::Arguments(format!("takes {N} or {} tensors, {} were given", N + 1, x.len()))),
    }
}

fn misrouted(op: &Op) -> OpError {
    OpError::Arguments(format!("{} does not take these arguments", op.name()))
}

/// Sizes fit in i64 on every machine that can hold the tensors.
fn int(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn ints(ns: &[usize]) -> Vec<i64> {
    ns.iter().map(|n| int(*n)).collect()
}

fn dim(d: isize) -> i64 {
    d as i64
}

fn dims(ds: &[isize]) -> Vec<i64> {
    ds.iter().map(|d| dim(*d)).collect()
}
