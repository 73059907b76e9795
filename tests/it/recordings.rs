//! Recordings that were made on real devices, compared with the reference of this build.
//!
//! `fixtures/recordings/DEVICE-LIBRARY-DATE/TARGET`: made by `scripts/cuda-check` on a machine
//! with that device, of `fixtures/digits-vit` with a batch of two. The reference is computed
//! here, now; what a card computed then must still be within the bands.

use std::path::{Path, PathBuf};

use tensor_parity::precision::Precision;
use tensor_parity::recording::Recording;
use tensor_parity::run::{Plan, SubjectSpec, Target, execute};
use tensor_parity::tolerance::Policy;
use tensor_parity::verdict::{Counts, Finding, PolicyRules, Sides, Verdict, assemble};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Every recording in the tree, sorted.
fn recordings() -> Vec<PathBuf> {
    let directories = |path: &Path| {
        let mut all: Vec<PathBuf> = std::fs::read_dir(path)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect();
        all.sort();
        all
    };
    directories(&root().join("recordings")).iter().flat_map(|machine| directories(machine)).collect()
}

/// The reference of this build for what `recording` computed.
fn reference(recording: &Recording, out: &Path) -> Recording {
    let target: Target = recording.manifest().target.name.parse().unwrap();
    let spec = SubjectSpec { batch: 2, ..SubjectSpec::new(&root().join("digits-vit")) };
    let plan = Plan::new(spec, target.reference(), out);
    execute(&plan, "reference", &|_, _| {}).unwrap()
}

/// Judged as a result of `precision`.
fn judged(recording: &Recording, reference: &Recording, precision: Precision) -> Vec<Finding> {
    let policy = Policy::builtin().unwrap();
    let rules = PolicyRules { policy: &policy, precision, quantities: reference.quantities().len() };
    assemble(Sides { candidate: recording, reference }, &rules).unwrap()
}

#[test]
fn what_a_real_card_recorded_is_within_the_bands_of_this_builds_reference() {
    let all = recordings();
    assert!(all.len() >= 4, "{all:?}");
    for path in all {
        let recording = Recording::open(&path).unwrap();
        recording.verify().unwrap();
        let manifest = recording.manifest();
        let out = tempfile::tempdir().unwrap();
        let reference = reference(&recording, out.path());
        assert_eq!(manifest.subject.differences(&reference.manifest().subject), [], "{}", path.display());
        // It is what it says: a real device that answered right and ran kernels.
        assert!(manifest.target.device.starts_with("cuda:") && !manifest.engine.emulated);
        let device = manifest.device.as_ref().unwrap();
        assert!(device.verified() && device.kernels.as_ref().unwrap().kernels > 100);
        let precision = manifest.target.precision.parse().unwrap();
        let findings = judged(&recording, &reference, precision);
        let counts = Counts::of(&findings);
        let red: Vec<_> = findings
            .iter()
            .filter(|f| !matches!(f.verdict, Verdict::Within | Verdict::Marginal))
            .map(|f| (&f.quantity, f.verdict, f.deviation))
            .collect();
        assert_eq!(red, [], "{}", path.display());
        assert!(counts.within > 130, "{}: {counts:?}", path.display());
    }
}

#[test]
fn a_recording_of_another_precision_is_outside_the_bands() {
    // The TF32 recording under the name of an f32 target: the numbers alone tell.
    let find = |name: &str| recordings().into_iter().find(|path| path.ends_with(name)).unwrap();
    let (honest, tf32) = (find("torch-cuda-0@f32"), find("torch-cuda-0@tf32"));
    let out = tempfile::tempdir().unwrap();
    let (honest, tf32) = (Recording::open(&honest).unwrap(), Recording::open(&tf32).unwrap());
    let reference = reference(&honest, out.path());
    let findings = judged(&tf32, &reference, Precision::F32);
    let outside = findings.iter().filter(|f| f.verdict == Verdict::Outside).count();
    assert!(outside > 50, "{outside} of {}", findings.len());
}
