//! The difference table: everything a person reads, and every renderer's one source.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Conclusion, Counts, Finding};
use crate::trace::Placement;

/// Version of the JSON form of [`DifferenceTable`].
pub const TABLE_SCHEMA_VERSION: u32 = 1;

/// What was compared: equal for all targets of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectSummary {
    /// Name of the model directory (its last component only).
    pub model: String,
    /// Architecture family.
    pub family: String,
    /// Hash over checkpoint, program, batch and seed.
    pub fingerprint: String,
    /// Content hash of the checkpoint.
    pub checkpoint: String,
    /// Hash of the program.
    pub program: String,
    /// Content hash of the batch.
    pub batch: String,
    /// Seed of inputs, labels and masks.
    pub seed: u64,
    /// Samples in the forward and backward pass.
    pub batch_size: usize,
    /// Samples of the evaluation, 0 without labelled data.
    pub evaluation_samples: usize,
    /// `train` or `eval`.
    pub mode: String,
}

/// How a target ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetStatus {
    /// It recorded.
    Ran,
    /// Its recording of an earlier run was used.
    Reused,
    /// Its device or engine is not here.
    Absent,
    /// Its process ended without a recording.
    Died,
}

impl TargetStatus {
    /// Name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Reused => "reused",
            Self::Absent => "absent",
            Self::Died => "died",
        }
    }
}

/// Three answers about an accelerator, kept apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// The library has code for it.
    pub built: bool,
    /// The library says that it is there.
    pub available: bool,
    /// It answered known questions right; `None` where none was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// Kernels of one pass, where something counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<u64>,
}

/// One target of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetSummary {
    /// As asked for: `candle:cpu@f32`.
    pub target: String,
    /// Engine and its version.
    pub engine: String,
    /// Device, as the tensors said; several if they were spread.
    pub devices: Vec<String>,
    /// Marketing name of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Software in place of the device.
    #[serde(default)]
    pub emulated: bool,
    /// Precision by name.
    pub precision: String,
    /// Three answers about an accelerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceSummary>,
    /// Where the traced passes did their work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// How it ended.
    pub status: TargetStatus,
    /// Why it is absent or died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Switches that change numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, String>,
    /// Its rows by verdict.
    pub counts: Counts,
    /// Loss of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Top-1 accuracy on the labelled data, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top1: Option<f64>,
    /// Top-5 accuracy on the labelled data, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top5: Option<f64>,
    /// Seconds of the forward pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_s: Option<f64>,
    /// Seconds of the backward pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward_s: Option<f64>,
    /// Seconds from start to end of the target's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_s: Option<f64>,
    /// Highest resident memory of the target's process, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Whether two runs of the pass were bit-equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_equal: Option<bool>,
    /// Whether loss and gradients are bit-equal with capture and tracing on and off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer_equal: Option<bool>,
    /// Further remarks, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The policy that set the bands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySummary {
    /// File or `default`.
    pub name: String,
    /// Content hash.
    pub hash: String,
}

/// The whole result of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DifferenceTable {
    /// [`TABLE_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// `parity` and its version.
    pub tool: String,
    /// Command line that makes this table again.
    pub command: String,
    /// What was compared.
    pub subject: SubjectSummary,
    /// Which bands applied.
    pub policy: PolicySummary,
    /// What the others were compared with.
    pub reference: Option<TargetSummary>,
    /// Targets in the order asked for.
    pub targets: Vec<TargetSummary>,
    /// All rows by verdict.
    pub counts: Counts,
    /// Outcome and exit code.
    pub conclusion: Conclusion,
    /// Warnings about the inputs (NaN weights, unused keys).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// All rows, worst first.
    pub findings: Vec<Finding>,
}

impl DifferenceTable {
    /// Rows in reading order: by verdict, then by distance beyond the band, then by name.
    pub fn sort(&mut self) {
        self.findings.sort_by(|a, b| {
            a.verdict
                .cmp(&b.verdict)
                .then(b.severity().total_cmp(&a.severity()))
                .then_with(|| a.target.cmp(&b.target))
                .then_with(|| a.quantity.cmp(&b.quantity))
        });
    }
}
