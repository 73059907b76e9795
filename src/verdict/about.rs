//! Rows about a target as a whole: whether it is what it says it is, whether its device
//! computes, and whether watching changed it.

use super::{Cause, Finding, Verdict};
use crate::engine::EngineInfo;
use crate::recording::{Check, Manifest};
use crate::trace::is_host;

/// Switches that are on in no precision, or in TF32 alone.
const REDUCED: [(&str, bool); 7] = [
    ("allow_tf32_matmul", true),
    ("allow_tf32_cudnn", true),
    ("allow_f16_reduced_precision_reduction", false),
    ("allow_bf16_reduced_precision_reduction", false),
    ("allow_f16_accumulation", false),
    ("allow_reduced_precision_attention", false),
    ("allow_f16_reduced_precision_reduction_cpu", false),
];

/// The part of an emulated device's name that tells it from the real one.
const EMULATED: &str = "emulated";

/// Rows about the target itself; none if there is nothing to say.
pub(super) fn about_target(manifest: &Manifest) -> Vec<Finding> {
    let rows = [name(manifest), device(manifest), canary(manifest), kernels(manifest), modes(manifest)];
    rows.into_iter().flatten().chain(checks(manifest)).collect()
}

/// Whether no tensor was where it was asked to be.
pub(super) fn is_elsewhere(manifest: &Manifest) -> bool {
    !manifest.devices.is_empty() && !manifest.devices.iter().any(|d| is_on(d, &manifest.target.device))
}

fn row(manifest: &Manifest, name: &str, verdict: Verdict, cause: Cause, note: String) -> Finding {
    Finding::about(&manifest.target.name, name, verdict, Some(cause), note)
}

/// An emulated device under the name of the real one, or another device than was asked for.
fn name(manifest: &Manifest) -> Option<Finding> {
    let (asked, ran) = (&manifest.target.device, &manifest.engine.device);
    let says_emulated = asked.contains(EMULATED) && manifest.target.name.contains(EMULATED);
    if manifest.engine.emulated != says_emulated {
        let note = format!(
            "the engine says that `{ran}` is {}, the target is called `{}`: an emulated device is never a \
             result of the one it stands for",
            if manifest.engine.emulated { "emulated" } else { "real" },
            manifest.target.name,
        );
        return Some(row(manifest, "target/emulation", Verdict::Invalid, Cause::Emulated, note));
    }
    (!is_on(ran, asked)).then(|| {
        let note = format!("{asked} was asked for, the engine opened {ran}");
        row(manifest, "target/engine", Verdict::Invalid, Cause::WrongDevice, note)
    })
}

fn device(manifest: &Manifest) -> Option<Finding> {
    let asked = &manifest.target.device;
    let elsewhere: Vec<_> = manifest.devices.iter().filter(|d| !is_on(d, asked)).cloned().collect();
    if elsewhere.is_empty() {
        return None;
    }
    let (elsewhere, all) = (elsewhere.join(", "), manifest.devices.join(", "));
    Some(if is_elsewhere(manifest) {
        let note = format!(
            "asked for {asked}, but tensors say that they live on {all}: this compares {elsewhere} under \
             another name"
        );
        row(manifest, "target/device", Verdict::Invalid, Cause::WrongDevice, note)
    } else {
        let note = format!("asked for {asked}, but some tensors say that they live on {elsewhere}");
        row(manifest, "target/device", Verdict::Outside, Cause::WrongDevice, note)
    })
}

/// Known questions that were answered wrong, or never asked.
fn canary(manifest: &Manifest) -> Option<Finding> {
    if is_host(&manifest.target.device) {
        return None;
    }
    let row =
        |verdict, note: &str| Some(row(manifest, "target/canary", verdict, Cause::Canary, note.to_owned()));
    match &manifest.device {
        None => row(
            Verdict::Unchecked,
            "nobody asked whether the device computes; record it again with this version",
        ),
        Some(device) if device.verified() => None,
        Some(device) if device.unasked() => {
            row(Verdict::Skipped, "the engine declares that the device has none of the kernels in this dtype")
        }
        Some(device) => {
            let complaint = device.complaint().unwrap_or_default();
            row(
                Verdict::Invalid,
                &format!(
                    "the device gives wrong answers to known questions, so no result of it counts: {complaint}"
                ),
            )
        }
    }
}

/// A device whose kernels are counted, and which ran none.
fn kernels(manifest: &Manifest) -> Option<Finding> {
    let evidence = manifest.device.as_ref()?.kernels.as_ref()?;
    (evidence.kernels == 0).then(|| {
        let note = format!(
            "{} was asked for, but {} saw no kernel on it: whatever computed this, the device did not",
            manifest.target.device, evidence.source
        );
        row(manifest, "target/kernels", Verdict::Invalid, Cause::NoKernels, note)
    })
}

/// Switches that make the target compute in less than its precision says.
fn modes(manifest: &Manifest) -> Option<Finding> {
    let tf32 = manifest.target.precision == "tf32";
    let on = |name: &str| manifest.engine.mode(name) == Some("true");
    let wrong: Vec<&str> = REDUCED
        .iter()
        .filter(|(name, in_tf32)| on(name) && !(tf32 && *in_tf32))
        .map(|(name, _)| *name)
        .collect();
    (!wrong.is_empty()).then(|| {
        let note = format!(
            "{} {} on, which precision {} declares off: the target computes in less than it says",
            wrong.join(", "),
            if wrong.len() == 1 { "is" } else { "are" },
            manifest.target.precision
        );
        row(manifest, "target/modes", Verdict::Outside, Cause::ModeMismatch, note)
    })
}

fn checks(manifest: &Manifest) -> Vec<Finding> {
    let all = [
        ("target/observer", Cause::Observer, &manifest.checks.observer, "capturing and tracing changed"),
        ("target/determinism", Cause::Nondeterministic, &manifest.checks.determinism, "a second run changed"),
    ];
    let mut findings = Vec::new();
    for (name, cause, check, what) in all {
        if let Check::Failed { compared, differing } = check
            && manifest.engine.deterministic
        {
            let first = differing.first().cloned().unwrap_or_default();
            let note = format!("{what} {} of {compared} tensors, first {first}", differing.len());
            findings.push(row(manifest, name, Verdict::Outside, cause, note));
        }
    }
    // A deficiency that never struck shows nothing about whatever was to be shown.
    if manifest.engine.mode(EngineInfo::STRUCK) == Some("0") && manifest.planted.is_some() {
        let note =
            "a fault was planted in the emulated device and never struck; name an operator of this pass";
        findings.push(row(manifest, "target/planted", Verdict::Unchecked, Cause::Emulated, note.to_owned()));
    }
    findings
}

/// Whether a device as a tensor names it is the one asked for: `cuda` means `cuda:0`.
fn is_on(found: &str, wanted: &str) -> bool {
    let base = |name: &str| {
        name.split_once(':').map_or((name.to_owned(), "0".to_owned()), |(a, b)| (a.into(), b.into()))
    };
    base(found) == base(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::canary::{Canary, KernelCheck, Outcome, Presence};
    use crate::engine::{DeviceEvidence, KernelEvidence};
    use crate::numerics::DType;
    use crate::recording::TargetId;
    use crate::recording::tests::manifest;

    fn canary(outcome: Outcome) -> Canary {
        let verified = outcome == Outcome::Exact;
        Canary {
            verified,
            kernels: vec![KernelCheck { kernel: "matmul".to_owned(), dtype: DType::F32, outcome }],
        }
    }

    fn on(device: &str) -> Manifest {
        let mut manifest = manifest();
        manifest.target = TargetId {
            name: format!("torch:{device}@f32"),
            engine: "torch".to_owned(),
            device: device.to_owned(),
            precision: "f32".to_owned(),
        };
        manifest.engine.engine = "torch".to_owned();
        manifest.engine.device = device.to_owned();
        manifest.devices = vec![device.to_owned()];
        manifest.device = Some(DeviceEvidence {
            presence: Presence::available(),
            canaries: vec![canary(Outcome::Exact)],
            kernels: None,
        });
        manifest
    }

    fn found(manifest: &Manifest) -> Vec<(String, Verdict, Cause)> {
        let rows = about_target(manifest);
        rows.into_iter().map(|row| (row.quantity, row.verdict, row.cause.unwrap())).collect()
    }

    #[test]
    fn a_sound_target_has_no_row() {
        for device in ["cpu", "cuda:0", "mps:0"] {
            assert_eq!(found(&on(device)), []);
        }
        let mut emulated = on("mps-emulated:0");
        emulated.engine.emulated = true;
        assert_eq!(found(&emulated), []);
    }

    #[test]
    fn an_emulated_device_is_never_a_result_of_the_real_one() {
        let invalid = |name: &str| (name.to_owned(), Verdict::Invalid, Cause::Emulated);
        // Renamed after the fact, in any of its names.
        let mut renamed = on("mps:0");
        renamed.engine.emulated = true;
        assert_eq!(found(&renamed), [invalid("target/emulation")]);
        let mut renamed = on("mps-emulated:0");
        renamed.engine.emulated = true;
        renamed.target.name = "torch:mps:0@f32".to_owned();
        assert_eq!(found(&renamed), [invalid("target/emulation")]);
        let renamed = on("mps-emulated:0");
        assert_eq!(found(&renamed), [invalid("target/emulation")]);
        // Even where the record denies it, its tensors do not.
        let mut renamed = on("mps:0");
        renamed.devices = vec!["mps-emulated:0".to_owned()];
        assert_eq!(found(&renamed), [("target/device".to_owned(), Verdict::Invalid, Cause::WrongDevice)]);
    }

    #[test]
    fn the_cpu_under_another_name_is_invalid() {
        let mut elsewhere = on("cuda:0");
        elsewhere.devices = vec!["cpu".to_owned()];
        assert_eq!(found(&elsewhere), [("target/device".to_owned(), Verdict::Invalid, Cause::WrongDevice)]);
        elsewhere.devices.push("cuda:0".to_owned());
        assert_eq!(found(&elsewhere), [("target/device".to_owned(), Verdict::Outside, Cause::WrongDevice)]);
        let mut elsewhere = on("cuda:0");
        elsewhere.engine.device = "cpu".to_owned();
        assert_eq!(found(&elsewhere), [("target/engine".to_owned(), Verdict::Invalid, Cause::WrongDevice)]);
    }

    #[test]
    fn a_device_that_ran_no_kernel_is_invalid() {
        let mut idle = on("cuda:0");
        let evidence = KernelEvidence { source: "kineto/CUPTI".to_owned(), ..KernelEvidence::default() };
        idle.device.as_mut().unwrap().kernels = Some(evidence);
        assert_eq!(found(&idle), [("target/kernels".to_owned(), Verdict::Invalid, Cause::NoKernels)]);
        idle.device.as_mut().unwrap().kernels.as_mut().unwrap().kernels = 1;
        assert_eq!(found(&idle), []);
    }

    #[test]
    fn a_canary_that_is_wrong_was_not_asked_or_is_missing_is_told() {
        let mut odd = on("cuda:0");
        let wrong = Outcome::NotRepeatable { index: 3 };
        odd.device.as_mut().unwrap().canaries = vec![canary(Outcome::Exact), canary(wrong)];
        assert_eq!(found(&odd), [("target/canary".to_owned(), Verdict::Invalid, Cause::Canary)]);
        let skipped = canary(Outcome::Skipped { reason: "no f64".to_owned() });
        odd.device.as_mut().unwrap().canaries = vec![skipped];
        assert_eq!(found(&odd), [("target/canary".to_owned(), Verdict::Skipped, Cause::Canary)]);
        odd.device = None;
        assert_eq!(found(&odd), [("target/canary".to_owned(), Verdict::Unchecked, Cause::Canary)]);
    }

    #[test]
    fn a_switch_that_the_precision_does_not_declare_is_a_deviation() {
        let mut switched = on("cpu");
        switched.engine.modes = vec![("allow_tf32_matmul".to_owned(), "true".to_owned())];
        assert_eq!(found(&switched), [("target/modes".to_owned(), Verdict::Outside, Cause::ModeMismatch)]);
        switched.target.precision = "tf32".to_owned();
        assert_eq!(found(&switched), []);
        switched.engine.modes = vec![("allow_f16_accumulation".to_owned(), "true".to_owned())];
        assert_eq!(found(&switched).len(), 1);
    }
}
