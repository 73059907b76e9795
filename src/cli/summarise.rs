//! From recordings and outcomes to the summaries that stand on top of the table.

use std::collections::BTreeMap;

use crate::recording::{Check, Manifest};
use crate::verdict::{Counts, DeviceSummary, Finding, TargetStatus, TargetSummary};

/// Length of a hash in summaries; the files have it in full.
const SHORT: usize = 12;

/// The start of a hash.
pub fn short(hash: &str) -> String {
    hash.chars().take(SHORT).collect()
}

/// Summary of a target that recorded.
pub fn ran(
    manifest: &Manifest,
    status: TargetStatus,
    wall_s: Option<f64>,
    findings: &[Finding],
) -> TargetSummary {
    let evaluation = manifest.evaluation.as_ref();
    let share = |count: usize| evaluation.map(|e| count as f64 / e.labelled.max(1) as f64);
    let equal = |check: &Check| match check {
        Check::Held { .. } => Some(true),
        Check::Failed { .. } => Some(false),
        Check::NotRun { .. } => None,
    };
    let mut notes = Vec::new();
    if let Some(fault) = &manifest.planted {
        notes.push(format!("a fault was planted on purpose: {fault}"));
    }
    if let Check::NotRun { reason } = &manifest.checks.observer
        && manifest.target.engine != "reference"
    {
        notes.push(format!("not compared with an unobserved run ({reason}; --self-check always)"));
    }
    if manifest.engine.emulated {
        notes.push("an emulated device in host memory: no result of the real one".to_owned());
    }
    if manifest.device.as_ref().is_some_and(|device| device.kernels.is_none()) && !manifest.engine.emulated {
        notes.push(
            "weak evidence that the device worked: its tensors say so, but nothing here counts its kernels"
                .to_owned(),
        );
    }
    if manifest.engine.mode("PYTORCH_ENABLE_MPS_FALLBACK").is_some_and(|v| !matches!(v, "unset" | "0" | ""))
        && manifest.target.device.starts_with("mps")
    {
        notes.push(
            "PYTORCH_ENABLE_MPS_FALLBACK is set: an operator that the device lacks does not fail, it runs on \
             the CPU; what did so in the traced passes stands under `placement/`"
                .to_owned(),
        );
    }
    if !manifest.engine.deterministic {
        notes.push("this target does not promise equal bits from run to run".to_owned());
    }
    TargetSummary {
        target: manifest.target.name.clone(),
        engine: format!("{} {}", manifest.engine.engine, manifest.engine.version),
        devices: manifest.devices.clone(),
        device_name: manifest.engine.device_name.clone(),
        emulated: manifest.engine.emulated,
        precision: manifest.target.precision.clone(),
        device: manifest.device.as_ref().map(|device| DeviceSummary {
            built: device.presence.built,
            available: device.presence.available,
            verified: (!device.unasked()).then(|| device.verified()),
            kernels: device.kernels.as_ref().map(|kernels| kernels.kernels),
        }),
        placement: manifest.placement.clone(),
        status,
        reason: None,
        modes: manifest.engine.modes.iter().cloned().collect(),
        counts: counts(&manifest.target.name, findings),
        loss: manifest.loss,
        top1: evaluation.and_then(|e| share(e.top1)),
        top5: evaluation.and_then(|e| share(e.top5)),
        forward_s: Some(manifest.timing.forward_s),
        backward_s: Some(manifest.timing.backward_s),
        wall_s,
        peak_memory_bytes: manifest.memory.peak_bytes,
        repeat_equal: equal(&manifest.checks.determinism),
        observer_equal: equal(&manifest.checks.observer),
        notes,
    }
}

/// Summary of a target that did not record.
pub fn did_not_run(
    target: &str,
    precision: &str,
    status: TargetStatus,
    reason: &str,
    findings: &[Finding],
) -> TargetSummary {
    TargetSummary {
        target: target.to_owned(),
        engine: target.split(':').next().unwrap_or(target).to_owned(),
        devices: Vec::new(),
        device_name: None,
        emulated: false,
        precision: precision.to_owned(),
        device: None,
        placement: None,
        status,
        reason: Some(reason.to_owned()),
        modes: BTreeMap::new(),
        counts: counts(target, findings),
        loss: None,
        top1: None,
        top5: None,
        forward_s: None,
        backward_s: None,
        wall_s: None,
        peak_memory_bytes: None,
        repeat_equal: None,
        observer_equal: None,
        notes: Vec::new(),
    }
}

fn counts(target: &str, findings: &[Finding]) -> Counts {
    Counts::of(findings.iter().filter(|f| f.target == target))
}
