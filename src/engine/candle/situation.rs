//! [`Situation`]: everything that decides how an operator is done, and small helpers.

use candle_core::{Error, Result, Tensor};
use half::{bf16, f16};

use super::KernelSet;
use crate::engine::Support;
use crate::numerics::DType;
use crate::program::{Op, Value, infer};
use crate::trace::Phase;

/// Where candle runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    Cpu,
    Cuda,
    Metal,
}

/// What decides how an operator is done; the same when asked and when applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation<'a> {
    pub backend: Backend,
    pub kernels: KernelSet,
    /// Dtype of the first result.
    pub dtype: DType,
    /// Types of the tensor arguments.
    pub types: &'a [&'a Value],
    /// `Backward`: the result must carry a gradient (an input is tracked).
    pub phase: Phase,
}

impl Situation<'_> {
    /// Whether a gradient will be asked for.
    pub fn training(&self) -> bool {
        self.phase == Phase::Backward
    }

    /// Whether the kernels without gradient are to be used where they exist.
    pub fn fused(&self) -> bool {
        self.kernels == KernelSet::Fused
    }

    /// bf16 on the CPU, where candle has no convolution.
    pub fn cpu_bf16(&self) -> bool {
        self.backend == Backend::Cpu && self.dtype == DType::BF16
    }

    /// Shape of an argument; empty when there is none.
    pub fn shape(&self, i: usize) -> &[usize] {
        self.types.get(i).map_or(&[], |v| v.shape.as_slice())
    }

    /// Size of one dimension of an argument; 0 when there is none.
    pub fn dim(&self, i: usize, dim: usize) -> usize {
        self.shape(i).get(dim).copied().unwrap_or(0)
    }

    /// Shape of the first result by the program's own rule.
    pub fn output(&self, op: &Op) -> Result<Vec<usize>> {
        let outputs = infer(op, self.types).map_err(|e| Error::Msg(e.to_string()))?;
        outputs.into_iter().next().map(|v| v.shape).ok_or_else(|| Error::Msg("no result".to_owned()))
    }
}

/// Declares a kernel without gradient.
pub(super) fn forward_only(s: &Situation<'_>, kernel: &str) -> Support {
    if s.training() {
        Support::Unsupported(format!(
            "candle's {kernel} has no gradient; use the default kernel set for gradients"
        ))
    } else {
        Support::Native
    }
}

/// The `i`th tensor argument.
pub(super) fn arg<'a>(x: &[&'a Tensor], i: usize) -> Result<&'a Tensor> {
    x.get(i).copied().ok_or_else(|| Error::Msg(format!("tensor argument {i} is missing")))
}

/// A family was asked for an operator of another one.
pub(super) fn not_mine<T>(op: &Op) -> Result<T> {
    Err(Error::Msg(format!("{} was sent to the wrong family", op.name())))
}

/// A tensor of one value in the dtype and on the device of `like`.
pub(super) fn constant(value: f64, shape: &[usize], like: &Tensor) -> Result<Tensor> {
    let device = like.device();
    match like.dtype() {
        candle_core::DType::F64 => Tensor::full(value, shape, device),
        candle_core::DType::F16 => Tensor::full(f16::from_f64(value), shape, device),
        candle_core::DType::BF16 => Tensor::full(bf16::from_f64(value), shape, device),
        #[expect(clippy::cast_possible_truncation, reason = "rounding to the tensor's dtype")]
        dtype => Tensor::full(value as f32, shape, device)?.to_dtype(dtype),
    }
}

/// Constants `values` of shape `shape` in the dtype and on the device of `like`.
pub(super) fn constants(values: &[f64], shape: &[usize], like: &Tensor) -> Result<Tensor> {
    let device = like.device();
    match like.dtype() {
        candle_core::DType::F64 => Tensor::from_slice(values, shape, device),
        candle_core::DType::F16 => {
            Tensor::from_vec(values.iter().map(|v| f16::from_f64(*v)).collect(), shape, device)
        }
        candle_core::DType::BF16 => {
            Tensor::from_vec(values.iter().map(|v| bf16::from_f64(*v)).collect(), shape, device)
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounding to the tensor's dtype")]
        dtype => Tensor::from_vec(values.iter().map(|v| *v as f32).collect(), shape, device)?.to_dtype(dtype),
    }
}

/// Indices as an `I64` vector on the device of `like`.
pub(super) fn indices(list: impl Iterator<Item = usize>, like: &Tensor) -> Result<Tensor> {
    let list = list
        .map(|i| i64::try_from(i).map_err(|_| Error::Msg(format!("index {i} does not fit into i64"))))
        .collect::<Result<Vec<_>>>()?;
    let n = list.len();
    Tensor::from_vec(list, n, like.device())
}

/// Position of a possibly negative dimension.
pub(super) fn axis(dim: isize, rank: usize) -> Result<usize> {
    crate::program::normalize_dim(dim, rank).map_err(|e| Error::Msg(e.to_string()))
}

/// Positions of possibly negative dimensions; all of them when none is named.
pub(super) fn axes(dims: &[isize], rank: usize) -> Result<Vec<usize>> {
    if dims.is_empty() { Ok((0..rank).collect()) } else { dims.iter().map(|d| axis(*d, rank)).collect() }
}

/// `f` on the tensors as they are; once more on contiguous copies if candle refuses views
/// (each backend in words of its own; a refusal, not a wrong number: its users add
/// `.contiguous()` then).
pub(super) fn contiguous_if_refused(
    a: &Tensor,
    b: &Tensor,
    f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    match f(a, b) {
        Err(_) if !a.is_contiguous() || !b.is_contiguous() => f(&a.contiguous()?, &b.contiguous()?),
        other => other,
    }
}
