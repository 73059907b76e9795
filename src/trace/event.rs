//! [`OperatorEvent`], one line of `trace.jsonl`.

use serde::{Deserialize, Serialize};

/// Part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// From inputs to loss.
    Forward,
    /// From loss to gradients.
    Backward,
    /// Update of the parameters.
    Optimizer,
}

/// Shape, dtype and place of a tensor that an operator read or wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMeta {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Name of the dtype as the engine has it.
    pub dtype: String,
    /// Device the tensor itself says it lives on.
    pub device: String,
}

/// One operator execution as the engine (libtorch: its dispatcher) saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorEvent {
    /// Position in the order of starts, from 0.
    pub seq: u64,
    /// Part of the pass.
    pub phase: Phase,
    /// Operator name as the engine calls it, such as `aten::addmm`.
    pub op: String,
    /// Index of the program node that it belongs to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<usize>,
    /// Module path of that node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// `seq` of the event that this one is nested in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// Nesting depth, 0 outermost.
    pub depth: u32,
    /// Number of the thread that ran it, in order of appearance.
    pub thread: u32,
    /// Tensor arguments.
    pub inputs: Vec<TensorMeta>,
    /// Tensor results.
    pub outputs: Vec<TensorMeta>,
    /// Bytes that this operator itself moved from one device to another.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_moved: u64,
    /// Start, nanoseconds since the beginning of the pass.
    pub start_ns: u64,
    /// Duration on the host, nanoseconds.
    pub duration_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature that serde asks for")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}
