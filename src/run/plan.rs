//! [`Plan`]: one subject, one target, and what to record of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::plant::Plant;
use super::{RunError, Target};
use crate::architecture::{BuildOptions, Mode};
use crate::engine::DeviceKind;
use crate::engine::torch::Emulation;
use crate::numerics::ErrorModel;
use crate::recording::{Noise, Subject};

/// Where inputs and labels come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// The labelled data file of the model directory if there is one, else the seed.
    #[default]
    Auto,
    /// Drawn from the seed.
    Seed,
    /// This data file.
    File(PathBuf),
}

/// What is computed, in terms of files and numbers that a user gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubjectSpec {
    /// Model directory.
    pub model: PathBuf,
    /// Samples in the batch.
    pub batch: usize,
    /// Tokens in a sample; `None`: the family's choice.
    #[serde(default)]
    pub sequence: Option<usize>,
    /// Height and width of images; `None`: the config's, or 224.
    #[serde(default)]
    pub image: Option<[usize; 2]>,
    /// Whether dropout and batch norm behave as in training.
    #[serde(default)]
    pub train: bool,
    /// Seed of inputs, labels and dropout masks.
    pub seed: u64,
    /// Where inputs and labels come from.
    #[serde(default)]
    pub data: Data,
    /// First sample of the data file that the batch takes.
    #[serde(default)]
    pub first_sample: usize,
}

impl SubjectSpec {
    /// A model in evaluation mode: batch of 8, seed 0, its own data file if it has one.
    #[must_use]
    pub fn new(model: &Path) -> Self {
        Self {
            model: model.to_owned(),
            batch: 8,
            sequence: None,
            image: None,
            train: false,
            seed: 0,
            data: Data::Auto,
            first_sample: 0,
        }
    }

    pub(super) fn build_options(&self) -> BuildOptions {
        BuildOptions {
            batch: self.batch,
            sequence: self.sequence,
            image: self.image,
            mode: if self.train { Mode::Train } else { Mode::Eval },
        }
    }
}

/// Which tensors are recorded beside loss and logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captures {
    /// Output of every module.
    pub activations: bool,
    /// Gradient of every parameter and of float inputs.
    pub gradients: bool,
    /// Gradient of every module's output.
    pub activation_gradients: bool,
}

impl Captures {
    /// Everything.
    pub const ALL: Self = Self { activations: true, gradients: true, activation_gradients: true };
    /// Module outputs and gradients of parameters and inputs.
    pub const DEFAULT: Self = Self { activations: true, gradients: true, activation_gradients: false };
}

/// One target's work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is computed.
    pub subject: SubjectSpec,
    /// By whom.
    pub target: Target,
    /// What is recorded.
    pub captures: Captures,
    /// Write operator events.
    pub trace: bool,
    /// Passes without capture and trace before the recorded one. With at least one, the
    /// determinism and observer checks are made and the bare time is measured.
    pub bare_passes: u32,
    /// Traced passes, the recorded one among them, at least 1: a fallback may happen in some
    /// steps only.
    #[serde(default = "one")]
    pub steps: u32,
    /// Compute metrics over all labelled samples, where there are any.
    pub evaluate: bool,
    /// Predict noise floors (reference only).
    #[serde(default)]
    pub noise: Option<NoisePlan>,
    /// A fault to plant.
    #[serde(default)]
    pub plant: Option<Plant>,
    /// What the software MPS device lacks or gets wrong; other devices ignore it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emulation: Vec<Emulation>,
    /// Memory that the target's process may map, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Environment variables to set, or (`None`) to remove, for the target's process.
    #[serde(default)]
    pub environment: BTreeMap<String, Option<String>>,
    /// Keep host and user name in the recording.
    #[serde(default)]
    pub identify: bool,
    /// Directory that becomes the recording.
    pub destination: PathBuf,
}

const fn one() -> u32 {
    1
}

/// How noise floors are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoisePlan {
    /// Replicas of forward and backward.
    pub replicas: u32,
    /// Replicas of the forward passes over the evaluation set, for metrics and per-sample
    /// logits; these are many samples, so few replicas do.
    pub evaluation_replicas: u32,
    /// Seed of the noise.
    pub seed: u64,
    /// Coefficients of the operators' error.
    pub model: ErrorModel,
}

impl Default for NoisePlan {
    fn default() -> Self {
        Self { replicas: 16, evaluation_replicas: 4, seed: 0, model: ErrorModel::default() }
    }
}

impl NoisePlan {
    /// As the recording keeps it.
    pub(super) const fn record(self) -> Noise {
        let Self { replicas, evaluation_replicas, seed, model } = self;
        Noise { replicas, evaluation_replicas, seed, model }
    }
}

impl Plan {
    /// A target's plan with usual captures, one bare pass and metrics, its recording named
    /// after the target in `out`; the reference's predicts noise and needs no bare pass.
    #[must_use]
    pub fn new(subject: SubjectSpec, target: Target, out: &Path) -> Self {
        let reference = target.is_reference();
        let accelerator = target.device.kind != DeviceKind::Cpu;
        Self {
            destination: out.join(target.file_name()),
            captures: Captures::DEFAULT,
            trace: !reference,
            bare_passes: u32::from(!reference),
            // The host cannot fall back to itself.
            steps: if accelerator { 2 } else { 1 },
            evaluate: true,
            noise: reference.then(NoisePlan::default),
            plant: None,
            emulation: Vec::new(),
            memory_limit: None,
            environment: BTreeMap::new(),
            identify: false,
            subject,
            target,
        }
    }

    /// Hash of what this plan asks for, of `subject` and of the program that would do it: a
    /// recording with the same key need not be made again. Paths are not part of it.
    #[must_use]
    pub fn key(&self, subject: &Subject, build: &str) -> String {
        // A newline cannot stand inside any part: JSON escapes it, the others are hex.
        let parts = serde_json::json!([
            self.target,
            self.captures,
            self.trace,
            self.bare_passes,
            self.steps,
            self.evaluate,
            self.noise,
            self.plant,
            self.emulation,
            self.memory_limit,
            self.environment,
            self.identify,
        ]);
        let text = format!("{}\n{build}\n{parts}", subject.fingerprint());
        blake3::hash(text.as_bytes()).to_hex().to_string()
    }
}

/// Identity of an executable: a rebuilt one may compute something else.
///
/// Size and modification time, not content: hashing a binary of 50 MB at every start would
/// cost more than it tells.
#[must_use]
pub fn build_identity(binary: &Path) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let Ok(metadata) = std::fs::metadata(binary) else { return version.to_owned() };
    let modified = metadata
        .modified()
        .ok()
        .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok())
        .map_or(0, |d| d.as_nanos());
    format!("{version}-{}-{modified}", metadata.len())
}

/// What is handed to the process of a target, as a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PlanFile {
    pub key: String,
    pub plan: Plan,
}

impl PlanFile {
    pub(super) fn write(&self, path: &Path) -> Result<(), RunError> {
        let failed = |source: std::io::Error| RunError::PlanFile { path: path.to_owned(), source };
        let json = serde_json::to_vec_pretty(self).map_err(|e| failed(e.into()))?;
        std::fs::write(path, json).map_err(failed)
    }

    pub(super) fn read(path: &Path) -> Result<Self, RunError> {
        let failed = |source: std::io::Error| RunError::PlanFile { path: path.to_owned(), source };
        let json = std::fs::read(path).map_err(failed)?;
        serde_json::from_slice(&json).map_err(|e| failed(e.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject {
            checkpoint: "c".into(),
            program: "p".into(),
            batch: "b".into(),
            evaluation: String::new(),
            seed: 0,
            mode: "eval".into(),
        }
    }

    fn plan(target: &str) -> Plan {
        Plan::new(SubjectSpec::new(Path::new("m")), target.parse().unwrap(), Path::new("out"))
    }

    #[test]
    fn whatever_changes_the_result_changes_the_key_and_paths_do_not() {
        let base = plan("candle:cpu@f32");
        let key = |plan: &Plan| plan.key(&subject(), "build");
        let changed = [
            plan("candle:cpu@bf16"),
            Plan { trace: false, ..base.clone() },
            Plan { captures: Captures::ALL, ..base.clone() },
            Plan { bare_passes: 2, ..base.clone() },
            Plan { steps: 2, ..base.clone() },
            Plan { emulation: vec!["zeroed@device".parse().unwrap()], ..base.clone() },
            Plan { memory_limit: Some(1 << 30), ..base.clone() },
            Plan { evaluate: false, ..base.clone() },
            Plan { plant: Some("nan".parse().unwrap()), ..base.clone() },
            Plan { environment: [("X".to_owned(), None)].into(), ..base.clone() },
        ];
        for plan in &changed {
            assert_ne!(key(plan), key(&base));
        }
        assert_ne!(base.key(&subject(), "other build"), key(&base));
        assert_ne!(base.key(&Subject { seed: 1, ..subject() }, "build"), key(&base));
        let moved = Plan {
            destination: "elsewhere".into(),
            subject: SubjectSpec::new(Path::new("copy of m")),
            ..base.clone()
        };
        assert_eq!(key(&moved), key(&base));
        let reference = plan("reference@f32");
        let other =
            NoisePlan { model: ErrorModel { c_acc: 0.5, ..ErrorModel::default() }, ..NoisePlan::default() };
        assert_ne!(key(&Plan { noise: Some(other), ..reference.clone() }), key(&reference));
    }

    #[test]
    fn a_plan_survives_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let mut plan = plan("reference@bf16");
        plan.subject.seed = u64::MAX;
        plan.plant = Some("scale:1e-3:layers.0".parse().unwrap());
        plan.emulation.push("scale:1e-3@aten::mul".parse().unwrap());
        plan.memory_limit = Some(1 << 40);
        plan.environment.insert("PYTORCH_ENABLE_MPS_FALLBACK".to_owned(), Some("1".to_owned()));
        let file = PlanFile { key: "k".to_owned(), plan };
        file.write(&path).unwrap();
        assert_eq!(PlanFile::read(&path).unwrap(), file);
        std::fs::write(&path, "{}").unwrap();
        assert!(PlanFile::read(&path).unwrap_err().to_string().contains("plan.json"));
    }
}
