//! [`Manifest`]: the content of `recording.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Quantity, Subject, number};
use crate::engine::{DeviceEvidence, EngineInfo};
use crate::environment::Environment;
use crate::numerics::{DType, ErrorModel};
use crate::trace::Placement;

/// Version of the recording format that this build writes, and the newest that it reads.
pub const SCHEMA_VERSION: u32 = 1;

/// Everything of a recording but the tensors and the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Who wrote it.
    pub tool: Tool,
    /// What was computed.
    pub subject: Subject,
    /// [`Subject::fingerprint`].
    pub fingerprint: String,
    /// Hash of subject, target and everything that was asked for: a recording of the same
    /// plan need not be made again.
    pub plan: String,
    /// Who was asked to compute.
    pub target: TargetId,
    /// Who did compute.
    pub engine: EngineInfo,
    /// Where.
    pub environment: Environment,
    /// Devices that tensors said they were on, in order of appearance.
    pub devices: Vec<String>,
    /// What shows that the device worked (accelerators only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceEvidence>,
    /// Where the traced passes did their work; nothing without a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// Every quantity that was asked for, in program order.
    pub quantities: Vec<Quantity>,
    /// Every tensor in `tensors.safetensors`.
    pub tensors: BTreeMap<String, TensorRecord>,
    /// Loss of the batch, widened to f64.
    #[serde(default, with = "number::optional")]
    pub loss: Option<f64>,
    /// Metrics over all labelled samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Evaluation>,
    /// Seconds.
    pub timing: Timing,
    /// Bytes.
    pub memory: Memory,
    /// What the run found out about itself.
    pub checks: Checks,
    /// How the noise floors were made (reference recordings only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Operator events in `trace.jsonl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceRecord>,
    /// A fault that was planted on purpose: such a recording is no evidence of anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planted: Option<String>,
}

/// The writing program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `tensor-parity`.
    pub name: String,
    /// Its version.
    pub version: String,
}

impl Tool {
    /// This build.
    #[must_use]
    pub fn this() -> Self {
        Self { name: env!("CARGO_PKG_NAME").to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// A target by its parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TargetId {
    /// As written on the command line, such as `candle:cpu@f32`.
    pub name: String,
    /// `reference`, `candle`, `torch`.
    pub engine: String,
    /// `cpu`, `cuda:0`, `metal`, `mps`; what was asked for, not where it ran.
    pub device: String,
    /// Name of the precision.
    pub precision: String,
}

/// One tensor of `tensors.safetensors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorRecord {
    /// Dtype as delivered.
    pub dtype: DType,
    /// Shape as delivered.
    pub shape: Vec<usize>,
    /// CRC-32 (IEEE) of its bytes.
    pub crc32: u32,
}

/// `trace.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRecord {
    /// Number of lines.
    pub events: u64,
    /// Length of the file.
    pub bytes: u64,
    /// CRC-32 (IEEE) of its bytes.
    pub crc32: u32,
}

/// Metrics of all labelled samples, forward only.
///
/// Logits of every sample are the tensor [`Evaluation::LOGITS`], labels
/// [`Evaluation::LABELS`], and in reference recordings the floor of each sample
/// [`Evaluation::LOGIT_FLOOR`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Samples in the data file.
    pub samples: usize,
    /// Positions that carry a label (samples, or tokens that are not ignored).
    pub labelled: usize,
    /// Mean loss over labelled positions.
    #[serde(with = "number")]
    pub loss: f64,
    /// Labelled positions whose largest logit is the label. Ties go to the lower class.
    pub top1: usize,
    /// Labelled positions whose label is among the five largest logits.
    pub top5: usize,
}

impl Evaluation {
    /// Tensor `[samples, .., classes]` in the dtype of the precision.
    pub const LOGITS: &'static str = "evaluation/logits";
    /// Tensor `[samples, ..]`, I64.
    pub const LABELS: &'static str = "evaluation/labels";
    /// Tensor `[samples, ..]`, F64: root mean square over noise replicas of the largest
    /// deviation of any logit at that position. A top-2 margin below twice a multiple of
    /// it may flip by rounding alone.
    pub const LOGIT_FLOOR: &'static str = "evaluation/logit_floor";
}

/// Seconds of wall time; every device pass synchronised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Opening the checkpoint and making program, batch and feed.
    pub prepare_s: f64,
    /// Making the engine (device start-up).
    pub engine_s: f64,
    /// Forward of the recorded pass, from the first operator to the loss.
    pub forward_s: f64,
    /// Backward of the recorded pass.
    pub backward_s: f64,
    /// The whole recorded pass: upload, forward, backward, download of what was captured.
    pub pass_s: f64,
    /// Passes without capture or trace, in order; the first one is cold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bare: Vec<BarePass>,
    /// All forward passes over the evaluation set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation_s: Option<f64>,
    /// Noise replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_s: Option<f64>,
    /// Writing tensors and trace.
    pub write_s: f64,
}

impl Timing {
    /// The fastest bare pass, forward and backward: what speed is compared with.
    #[must_use]
    pub fn bare_s(&self) -> Option<f64> {
        self.bare.iter().map(|p| p.forward_s + p.backward_s).reduce(crate::numerics::min_nan)
    }
}

/// One pass without capture or trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BarePass {
    /// Forward.
    pub forward_s: f64,
    /// Backward.
    pub backward_s: f64,
}

/// Memory in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Highest resident memory of the process when the recording was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Highest resident memory of the process after the bare passes, before anything was
    /// captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bare_peak_bytes: Option<u64>,
    /// Highest memory of the device, where the engine can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_peak_bytes: Option<u64>,
}

/// Outcome of a self-check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Check {
    /// Every tensor was bit-equal.
    Held {
        /// How many tensors were compared.
        compared: usize,
    },
    /// Some were not.
    Failed {
        /// How many tensors were compared.
        compared: usize,
        /// Quantities that differ, in program order.
        differing: Vec<String>,
    },
    /// Not done.
    NotRun {
        /// Why.
        reason: String,
    },
}

impl Check {
    /// Not done, with the reason.
    #[must_use]
    pub fn not_run(reason: &str) -> Self {
        Self::NotRun { reason: reason.to_owned() }
    }
}

/// What a run found out about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Two bare passes: loss, logits and gradients bit-equal?
    pub determinism: Check,
    /// The recorded pass (captures and trace on) against a bare one: loss, logits and
    /// gradients bit-equal? Says something only where the target is deterministic.
    pub observer: Check,
}

impl Checks {
    /// Adds what further observed passes showed: one pass that differs is enough.
    pub fn repeat(&mut self, repeated: Check) {
        match (&self.determinism, &repeated) {
            (Check::Failed { .. }, _) | (_, Check::NotRun { .. }) => {}
            (Check::Held { .. } | Check::NotRun { .. }, _) => self.determinism = repeated,
        }
    }
}

/// How noise floors were made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Replicas of forward and backward.
    pub replicas: u32,
    /// Replicas of the forward passes over the evaluation set.
    pub evaluation_replicas: u32,
    /// Seed of the noise.
    pub seed: u64,
    /// Coefficients of the operators' error.
    pub model: ErrorModel,
}
