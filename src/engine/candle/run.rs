//! [`Engine`] for [`CandleEngine`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use candle_core::{DeviceLocation, Tensor, Var};

use super::CandleEngine;
use super::dispatch;
use super::situation::Situation;
use super::transfer;
use crate::engine::{BackwardRequest, Call, Engine, EngineError, EngineInfo, Leaf, Support, Unsupported};
use crate::numerics::DType;
use crate::program::{Op, Value};
use crate::tensor::HostTensor;
use crate::trace::Phase;

impl Engine for CandleEngine {
    type Tensor = Tensor;

    fn info(&self) -> EngineInfo {
        EngineInfo {
            engine: "candle".to_owned(),
            version: super::VERSION.to_owned(),
            device: self.spec.to_string(),
            device_name: None,
            emulated: false,
            // Atomic additions (index_add, scatter_add) have no order on a GPU.
            deterministic: self.device.is_cpu(),
            modes: self.modes(),
        }
    }

    fn supports(&self, op: &Op, dtype: DType, types: &[&Value], phase: Phase) -> Support {
        self.declared(op, &self.situation(dtype, types, phase))
    }

    fn upload(&self, host: &HostTensor, leaf: Leaf) -> Result<Tensor, EngineError> {
        self.guarded("upload", || transfer::upload(host, leaf, &self.device))
    }

    fn download(&self, tensor: &Tensor) -> Result<HostTensor, EngineError> {
        self.guarded("download", || transfer::download(tensor))
    }

    fn apply(&self, call: &Call<'_>, inputs: &[&Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let tracked = inputs.iter().any(|tensor| tensor.track_op());
        let phase = if tracked { Phase::Backward } else { Phase::Forward };
        let situation = self.situation(call.dtype(), call.inputs, phase);
        if let Support::Unsupported(reason) = self.declared(call.op, &situation) {
            return Err(Unsupported {
                engine: self.label(),
                op: call.op.name(),
                dtype: call.dtype(),
                reason,
            }
            .into());
        }
        self.guarded(&call.describe(), || dispatch::apply(call.op, &situation, inputs))
    }

    fn watch(&self, tensor: &Tensor) -> Result<(Tensor, Tensor), EngineError> {
        self.guarded("watch", || watch(tensor))
    }

    fn backward(&self, request: &BackwardRequest<'_, Tensor>) -> Result<Vec<Option<Tensor>>, EngineError> {
        self.guarded("backward", || {
            let store = request.loss.backward()?;
            // Detached: a gradient would otherwise keep the graph that computed it alive.
            Ok(request.wrt.iter().map(|leaf| store.get(leaf).map(Tensor::detach)).collect())
        })
    }

    fn device_of(&self, tensor: &Tensor) -> String {
        match tensor.storage_and_layout().0.device().location() {
            DeviceLocation::Cpu => "cpu".to_owned(),
            DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
            DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
        }
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        self.guarded("synchronize", || self.device.synchronize())
    }
}

impl CandleEngine {
    /// The declared set; a candid engine lets kernels without gradient run in training too.
    fn declared(&self, op: &Op, situation: &Situation<'_>) -> Support {
        match dispatch::supports(op, situation) {
            Support::Unsupported(_) if self.candid && situation.training() => {
                dispatch::supports(op, &Situation { phase: Phase::Forward, ..*situation })
            }
            other => other,
        }
    }

    fn situation<'a>(&self, dtype: DType, types: &'a [&'a Value], phase: Phase) -> Situation<'a> {
        Situation { backend: self.backend(), kernels: self.kernels, dtype, types, phase }
    }

    fn guarded<T>(&self, op: &str, f: impl FnOnce() -> candle_core::Result<T>) -> Result<T, EngineError> {
        caught(f).map_err(|message| EngineError::Failed { engine: self.label(), op: op.to_owned(), message })
    }
}

/// What `f` returns, or candle's words for why not. candle panics on some inputs (its sort
/// on NaN, its backward on a value without gradient); the panic ends here.
pub(super) fn caught<T>(f: impl FnOnce() -> candle_core::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(first_line(&error.to_string())),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(format!("candle panicked: {}", first_line(text)))
        }
    }
}

/// Without the backtrace that candle appends to its messages.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// `x + (−0)` with a variable, in the memory layout of `x`: candle takes other kernels, and
/// so other orders of summation, for strided tensors.
fn watch(tensor: &Tensor) -> candle_core::Result<(Tensor, Tensor)> {
    let zeros = Tensor::zeros(tensor.shape(), tensor.dtype(), tensor.device())?;
    let handle = Var::from_tensor(&zeros.neg()?)?.into_inner();
    let mut order: Vec<usize> = (0..tensor.rank()).collect();
    order.sort_by_key(|dim| std::cmp::Reverse(tensor.stride().get(*dim).copied()));
    let dense = tensor.permute(order.as_slice())?;
    if tensor.is_contiguous() || !dense.is_contiguous() {
        return Ok((tensor.add(&handle)?, handle));
    }
    let mut back = vec![0; order.len()];
    for (position, dim) in order.iter().enumerate() {
        if let Some(slot) = back.get_mut(*dim) {
            *slot = position;
        }
    }
    let sum = dense.add(&handle.permute(order.as_slice())?)?;
    Ok((sum.permute(back.as_slice())?, handle))
}
