//! [`Fallback`]: work that left the device that a pass was asked to run on.

use serde::{Deserialize, Serialize};

use super::Phase;

/// How work left the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FallbackKind {
    /// The pass, or an operator of it, ran on another device than the one asked for; the CPU
    /// under another name is the worst case.
    DeviceNotAsked,
    /// A tensor was on the host from the start and met tensors of the device.
    MisplacedTensor,
    /// An operator ran on the CPU inside the pass.
    OperatorOnCpu,
    /// An operator that the engine's backend sends to the CPU always, switch or no switch.
    AlwaysOnCpu,
    /// Data went to the host or came from it outside an operator that fell back.
    HostRoundTrip,
}

impl FallbackKind {
    /// In a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeviceNotAsked => "device not asked for",
            Self::MisplacedTensor => "tensor on the wrong device",
            Self::OperatorOnCpu => "operator on the CPU",
            Self::AlwaysOnCpu => "always on the CPU",
            Self::HostRoundTrip => "host round trip",
        }
    }
}

/// Calls of one operator, at one place of the program, that left the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fallback {
    /// How.
    pub kind: FallbackKind,
    /// Operator as the engine calls it; for an input of the program its name.
    pub operator: String,
    /// Part of the pass.
    pub phase: Phase,
    /// Program node, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<usize>,
    /// Module path, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Shapes of the tensor arguments.
    pub shapes: Vec<Vec<usize>>,
    /// Dtypes of the tensor arguments.
    pub dtypes: Vec<String>,
    /// Calls in each step, in order.
    pub calls: Vec<u32>,
    /// Bytes from the device to the host, all steps together.
    pub bytes_to_host: u64,
    /// Bytes from the host to the device, all steps together.
    pub bytes_to_device: u64,
    /// Share of the time of all steps together, 0 to 1, as the host saw it.
    pub share: f64,
    /// What is known about it, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Fallback {
    /// Whether it happened in every step.
    #[must_use]
    pub fn in_each_step(&self) -> bool {
        self.calls.iter().all(|calls| *calls > 0)
    }

    /// Number of steps in which it happened.
    #[must_use]
    pub fn steps_hit(&self) -> usize {
        self.calls.iter().filter(|calls| **calls > 0).count()
    }

    /// Its tensor arguments in words, `f32 [2, 4], i64 [3]`; empty where it has none.
    #[must_use]
    pub fn arguments(&self) -> String {
        let tensors = self.shapes.iter().zip(&self.dtypes).map(|(shape, dtype)| format!("{dtype} {shape:?}"));
        tensors.collect::<Vec<_>>().join(", ")
    }

    /// Most calls in one step.
    #[must_use]
    pub fn calls_per_pass(&self) -> u32 {
        self.calls.iter().copied().max().unwrap_or(0)
    }
}

/// An operator that a backend never runs on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlwaysOnCpu {
    /// First part of the device label.
    pub device: &'static str,
    /// Operator without overload.
    pub operator: &'static str,
    /// Why, and since or until when as far as known.
    pub reason: &'static str,
}

const REGISTERED: &str = "registered to the CPU fallback in libtorch's MPS backend, whatever \
                          PYTORCH_ENABLE_MPS_FALLBACK says";
const OLDER: &str = "registered to the CPU fallback in libtorch's MPS backend in some versions, whatever \
                     PYTORCH_ENABLE_MPS_FALLBACK says";

/// Operators that libtorch's MPS backend sends to the CPU without being asked, from
/// `aten/src/ATen/mps/MPSFallback.mm`.
pub const ALWAYS_ON_CPU: &[AlwaysOnCpu] = &[
    AlwaysOnCpu { device: "mps", operator: "aten::embedding_renorm_", reason: REGISTERED },
    AlwaysOnCpu { device: "mps", operator: "aten::linalg_svd", reason: REGISTERED },
    AlwaysOnCpu { device: "mps", operator: "aten::col2im", reason: REGISTERED },
    AlwaysOnCpu { device: "mps", operator: "aten::upsample_nearest3d", reason: REGISTERED },
    AlwaysOnCpu { device: "mps", operator: "aten::im2col", reason: OLDER },
    AlwaysOnCpu { device: "mps", operator: "aten::bitwise_left_shift", reason: OLDER },
    AlwaysOnCpu { device: "mps", operator: "aten::bitwise_right_shift", reason: OLDER },
];

/// Why the backend of `device` always sends `operator` to the CPU, if it does.
pub(super) fn always_on_cpu(device: &str, operator: &str) -> Option<&'static str> {
    let of_device = |entry: &&AlwaysOnCpu| {
        device.strip_prefix(entry.device).is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '-']))
    };
    ALWAYS_ON_CPU.iter().filter(of_device).find(|entry| entry.operator == operator).map(|entry| entry.reason)
}
