//! What shows that a device did the work: [`DeviceEvidence`].
//!
//! A tensor that says it lives on a device is a claim. Stronger than that are known answers
//! (the canary), and stronger still kernels that the device's own profiler saw.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::canary::{Canary, Presence};

/// Kernels that a device executed in one pass, as a profiler of the device saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelEvidence {
    /// Who counted, such as `kineto/CUPTI`.
    pub source: String,
    /// Kernels on the device that was asked for.
    pub kernels: u64,
    /// Copies and fills of memory on that device.
    pub copies: u64,
    /// Their time on the device, nanoseconds.
    pub device_ns: u64,
    /// Kernels by the operator that launched them.
    pub operators: BTreeMap<String, u64>,
}

/// Three answers about an accelerator, kept apart, and kernels where something counts them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceEvidence {
    /// Whether the library has code for the device, and whether it says that it is there.
    pub presence: Presence,
    /// Known questions, one set for each dtype that the pass uses.
    pub canaries: Vec<Canary>,
    /// Kernels of one pass; without them the evidence that the device worked is weak: what
    /// tensors say about themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<KernelEvidence>,
}

impl DeviceEvidence {
    /// Whether every known question was answered right, and at least one was asked.
    #[must_use]
    pub fn verified(&self) -> bool {
        !self.canaries.is_empty() && self.canaries.iter().all(|canary| canary.verified)
    }

    /// The first wrong answer, in words.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.canaries.iter().find_map(Canary::complaint)
    }

    /// Whether no question could be asked: the device has none of the kernels in this dtype.
    #[must_use]
    pub fn unasked(&self) -> bool {
        self.canaries.iter().all(Canary::unasked)
    }
}
