//! [`OperatorEvent`], one line of `trace.jsonl`.

use serde::{Deserialize, Serialize};

/// Part of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// From inputs to loss.
    #[default]
    Forward,
    /// From loss to gradients.
    Backward,
    /// Update of the parameters.
    Optimizer,
}

impl Phase {
    /// Lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
        }
    }
}

/// What kind of thing an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// An operator.
    #[default]
    Operator,
    /// A node of the engine's automatic differentiation, around the operators that it runs.
    Autograd,
    /// A range that somebody named.
    Range,
}

/// Shape, dtype and place of a tensor that an operator read or wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMeta {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Name of the dtype as the engine has it.
    pub dtype: String,
    /// Device the tensor itself says it lives on.
    pub device: String,
    /// A plain number that the engine wrapped as a tensor: it lies on the host by right.
    #[serde(default, skip_serializing_if = "is_false")]
    pub number: bool,
}

impl TensorMeta {
    /// Whether it lies in host memory without being a plain number.
    #[must_use]
    pub fn on_host(&self) -> bool {
        !self.number && is_host(&self.device)
    }

    /// Whether it lies on an accelerator.
    #[must_use]
    pub fn on_accelerator(&self) -> bool {
        !self.number && !is_host(&self.device) && self.device != "meta"
    }

    /// Bytes of its elements; 0 for a dtype of unknown size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shape.iter().fold(dtype_size(&self.dtype), |bytes, n| bytes.saturating_mul(*n as u64))
    }
}

/// Whether a device label means host memory.
#[must_use]
pub fn is_host(device: &str) -> bool {
    device == "cpu" || device.starts_with("cpu:")
}

fn dtype_size(name: &str) -> u64 {
    match name {
        "f64" | "i64" => 8,
        "f32" | "i32" => 4,
        "f16" | "bf16" | "i16" => 2,
        "u8" | "i8" | "bool" => 1,
        _ => 0,
    }
}

/// One operator execution as the engine (libtorch: its dispatcher) saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorEvent {
    /// Position in the order of starts, from 0.
    pub seq: u64,
    /// Part of the pass.
    pub phase: Phase,
    /// Operator name as the engine calls it, such as `aten::addmm`.
    pub op: String,
    /// Overload of the operator, such as `out`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub overload: String,
    /// Operator, autograd node or range.
    #[serde(default, skip_serializing_if = "is_operator")]
    pub kind: EventKind,
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

impl OperatorEvent {
    /// Arguments, then results.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorMeta> {
        self.inputs.iter().chain(&self.outputs)
    }

    /// End, nanoseconds since the beginning of the pass.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature that serde asks for")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature that serde asks for")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature that serde asks for")]
const fn is_operator(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Operator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_lies_on_the_host_by_right() {
        let number = TensorMeta { device: "cpu".to_owned(), number: true, ..TensorMeta::default() };
        assert!(!number.on_host() && !number.on_accelerator());
    }

    #[test]
    fn bytes_follow_shape_and_dtype() {
        let meta = TensorMeta { shape: vec![2, 3], dtype: "bf16".to_owned(), ..TensorMeta::default() };
        assert_eq!(meta.bytes(), 12);
        assert_eq!(TensorMeta { shape: vec![], dtype: "i64".to_owned(), ..meta }.bytes(), 8);
    }
}
