//! The [`Engine`] trait.

use serde::{Deserialize, Serialize};

use super::evidence::KernelEvidence;
use crate::numerics::DType;
use crate::program::{Op, Value};
use crate::tensor::HostTensor;
use crate::trace::{OperatorEvent, Phase};

/// Who executes: engine, version, device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInfo {
    /// `reference`, `candle`, `torch`.
    pub engine: String,
    /// Version of the library.
    pub version: String,
    /// Device as the engine names it: `cpu`, `cuda:0`, `metal:0`, `mps:0`.
    pub device: String,
    /// Marketing name of the device, where the engine can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Software in place of the device that is named: never counts as a result of it.
    #[serde(default)]
    pub emulated: bool,
    /// Whether two runs of the same pass give the same bits, as far as the engine promises.
    pub deterministic: bool,
    /// Switches that change numbers, as set for this run (`allow_tf32 = false`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<(String, String)>,
}

impl EngineInfo {
    /// Mode of the software MPS device: what it was told to lack or to get wrong.
    pub const EMULATED: &'static str = "emulated_deficiencies";
    /// Mode of the software MPS device: how often a planted fault struck.
    pub const STRUCK: &'static str = "emulated_faults_struck";

    /// The value of a mode.
    #[must_use]
    pub fn mode(&self, name: &str) -> Option<&str> {
        self.modes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// How an uploaded tensor takes part in differentiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// No gradient.
    Constant,
    /// A gradient may be asked for.
    Differentiable,
}

/// Whether an engine has an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Forward and backward.
    Native,
    /// A named decomposition stands in: results are comparable, the row says so.
    Decomposed(&'static str),
    /// Not at all, or not in this dtype; the reason.
    Unsupported(String),
}

/// An operator that an engine declares it does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{engine} does not support {op} in {dtype}: {reason}")]
pub struct Unsupported {
    /// Engine and device.
    pub engine: String,
    /// `ATen` name.
    pub op: &'static str,
    /// Dtype of the operator's (first) result.
    pub dtype: DType,
    /// Why.
    pub reason: String,
}

/// An engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Declared as unsupported: the row is skipped with this reason.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device does not exist here.
    #[error("{target} is absent: {reason}")]
    Absent {
        /// Engine and device.
        target: String,
        /// Whether the library has code for it at all.
        built: bool,
        /// What was seen.
        reason: String,
    },
    /// The library reported an error.
    #[error("{op} failed in {engine}: {message}")]
    Failed {
        /// Engine and device.
        engine: String,
        /// Operator, or `upload`, `download`, `backward`.
        op: String,
        /// The library's own words.
        message: String,
    },
}

/// One operator application, as the interpreter asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Operator and attributes.
    pub op: &'a Op,
    /// Types of the tensor arguments.
    pub inputs: &'a [&'a Value],
    /// Types of the results.
    pub outputs: &'a [&'a Value],
    /// Index of the node in the program.
    pub node: usize,
    /// Module path.
    pub path: &'a str,
}

impl Call<'_> {
    /// Dtype of the first result: the one the operator computes in.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.outputs.first().map_or(DType::F32, |v| v.dtype)
    }

    /// Name for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let (name, node) = (self.op.name(), self.node);
        if self.path.is_empty() {
            format!("#{node} {name}")
        } else {
            format!("#{node} {name} ({})", self.path)
        }
    }
}

/// What a backward pass is asked for.
#[derive(Debug)]
pub struct BackwardRequest<'a, T> {
    /// The scalar that is differentiated.
    pub loss: &'a T,
    /// Differentiable leaves (and watched values) whose gradients are wanted.
    pub wrt: &'a [&'a T],
}

/// A library that executes programs on one device.
///
/// The precision is not the engine's concern: a program says the dtype of every value.
pub trait Engine {
    /// The engine's tensor; cloning shares storage.
    type Tensor: Clone;

    /// Who this is.
    fn info(&self) -> EngineInfo;

    /// Whether `op` exists here in `dtype`. A declared set, tested by conformance cases;
    /// `types` are the argument types, for operators that depend on more than the dtype.
    fn supports(&self, op: &Op, dtype: DType, types: &[&Value], phase: Phase) -> Support;

    /// Copies a host tensor to the device, in its own dtype.
    ///
    /// # Errors
    /// If the dtype is unsupported or the device refuses.
    fn upload(&self, host: &HostTensor, leaf: Leaf) -> Result<Self::Tensor, EngineError>;

    /// Copies a tensor to the host, in its own dtype, contiguous.
    ///
    /// # Errors
    /// If the device refuses.
    fn download(&self, tensor: &Self::Tensor) -> Result<HostTensor, EngineError>;

    /// Applies one operator, recording what its gradient needs.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] for what `supports` declines; otherwise what the
    /// library reported.
    fn apply(&self, call: &Call<'_>, inputs: &[&Self::Tensor]) -> Result<Vec<Self::Tensor>, EngineError>;

    /// Makes the gradient of an intermediate value obtainable. Returns the tensor to
    /// compute on with, and the handle to name in [`BackwardRequest::wrt`].
    ///
    /// # Errors
    /// If the engine cannot do so.
    fn watch(&self, tensor: &Self::Tensor) -> Result<(Self::Tensor, Self::Tensor), EngineError> {
        Ok((tensor.clone(), tensor.clone()))
    }

    /// Gradients of the loss by the engine's own automatic differentiation, one a wanted
    /// tensor. `None` means that the engine has no gradient for it: not the same as zero.
    ///
    /// # Errors
    /// What the library reported.
    fn backward(
        &self,
        request: &BackwardRequest<'_, Self::Tensor>,
    ) -> Result<Vec<Option<Self::Tensor>>, EngineError>;

    /// Device that the tensor itself says it lives on.
    fn device_of(&self, tensor: &Self::Tensor) -> String;

    /// Waits until all work is done.
    ///
    /// # Errors
    /// Errors of earlier asynchronous work surface here.
    fn synchronize(&self) -> Result<(), EngineError>;

    /// Highest memory of the device so far, in bytes, where the engine can tell.
    fn peak_memory_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether the engine observes itself (libtorch's dispatcher does); then events come
    /// only from [`Engine::drain_events`] and the interpreter writes none.
    fn observes_itself(&self) -> bool {
        false
    }

    /// Begins to observe a pass whose events were asked for; they are collected by
    /// [`Engine::drain_events`]. Without this call an engine that observes itself pays nothing.
    ///
    /// # Errors
    /// If the observer cannot be started.
    fn start_trace(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Events since [`Engine::start_trace`], of engines that observe themselves; ends the trace.
    fn drain_events(&self) -> Vec<OperatorEvent> {
        Vec::new()
    }

    /// Runs `pass` and counts the kernels that the device executed meanwhile. `None`, and
    /// `pass` is not run, where nothing can tell: then only the tensors' own word says where
    /// the work was done.
    ///
    /// # Errors
    /// If the profiler cannot be used.
    fn count_kernels(&self, _pass: &mut dyn FnMut()) -> Option<Result<KernelEvidence, EngineError>> {
        None
    }

    /// Tells an engine that observes itself which node (`None`: backward) runs next.
    fn mark(&self, _phase: Phase, _node: Option<usize>) {}
}
