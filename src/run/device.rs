//! Whether the device computes: known questions before the passes, kernels counted after.

use super::record::Job;
use super::{RunError, Stage};
use crate::engine::canary::{self, Presence};
use crate::engine::interpreter::{PassError, PassOutput};
use crate::engine::{DeviceEvidence, DeviceKind, Engine, KernelEvidence};
use crate::numerics::DType;

/// Asks an accelerator known questions in every float dtype of the program. The host is not
/// asked: it is what the answers are checked on.
///
/// # Errors
/// [`RunError::Canary`] if no kernel gave any result; wrong results are evidence, not an
/// error.
pub(super) fn ask<E: Engine>(job: &Job<'_>, engine: &E) -> Result<Option<DeviceEvidence>, RunError> {
    let target = job.plan.target;
    if target.device.kind == DeviceKind::Cpu {
        return Ok(None);
    }
    (job.progress)(Stage::Canary, 0.0);
    let used = |dtype: &DType| job.precise.values.iter().any(|value| value.dtype == *dtype);
    let dtypes = DType::ALL.into_iter().filter(|dtype| dtype.is_float() && used(dtype));
    let canaries: Vec<_> = dtypes.map(|dtype| canary::verify(engine, dtype)).collect();
    if let Some(canary) = canaries.iter().find(|canary| canary.hopeless()) {
        let complaint = canary.complaint().unwrap_or_default();
        return Err(RunError::Canary { target, complaint });
    }
    // An engine that is open is built and says that its device is there.
    Ok(Some(DeviceEvidence { presence: Presence::available(), canaries, kernels: None }))
}

/// Counts the kernels of one more pass, where the engine can.
///
/// # Errors
/// If that pass fails or the profiler cannot be used.
pub(super) fn kernels<E: Engine>(
    job: &Job<'_>,
    engine: &E,
    pass: &mut dyn FnMut() -> Result<PassOutput, PassError>,
) -> Result<Option<KernelEvidence>, RunError> {
    let mut failed = None;
    let counted = engine.count_kernels(&mut || failed = pass().err());
    if let Some(error) = failed {
        return Err(job.pass_error(error));
    }
    let target = job.plan.target;
    counted.transpose().map_err(|source| RunError::Engine { target, source })
}
