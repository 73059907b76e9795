//! Writing and reading back, and what must be refused.

use std::fs;
use std::path::Path;

use super::writer::{MANIFEST, TENSORS, TRACE};
use super::*;
use crate::engine::EngineInfo;
use crate::environment::Environment;
use crate::numerics::{DType, Role};
use crate::tensor::HostTensor;
use crate::trace::{OperatorEvent, Phase};

fn quantity(name: &str, state: State) -> Quantity {
    Quantity {
        name: name.to_owned(),
        kind: QuantityKind::Gradient,
        role: Role::Matmul,
        path: "layers.0".to_owned(),
        node: Some(3),
        dtype: DType::F32,
        shape: vec![2],
        state,
        decomposed: None,
        floor: Some(Floor { norm: 1e-7, replicas: 16, degrees_of_freedom: 2.0 }),
    }
}

/// A manifest to change at will.
pub(crate) fn manifest() -> Manifest {
    let skipped = State::Skipped { reason: "candle has no gradient of sort".to_owned() };
    Manifest {
        device: None,
        placement: None,
        schema_version: SCHEMA_VERSION,
        tool: Tool::this(),
        subject: subject::example(),
        fingerprint: String::new(),
        plan: "plan".to_owned(),
        target: TargetId {
            name: "candle:cpu@f32".to_owned(),
            engine: "candle".to_owned(),
            device: "cpu".to_owned(),
            precision: "f32".to_owned(),
        },
        engine: EngineInfo {
            engine: "candle".to_owned(),
            version: "0.11.1".to_owned(),
            device: "cpu".to_owned(),
            device_name: None,
            emulated: false,
            deterministic: true,
            modes: vec![("allow_tf32".to_owned(), "false".to_owned())],
        },
        environment: Environment::default(),
        devices: vec!["cpu".to_owned()],
        quantities: vec![
            quantity("gradient/a", State::Value),
            quantity("gradient/b", State::None),
            quantity("gradient/c", skipped),
            quantity("gradient/d", State::Missing { reason: "no tensor was delivered".to_owned() }),
        ],
        tensors: std::collections::BTreeMap::new(),
        loss: Some(f64::NAN),
        evaluation: Some(Evaluation { samples: 4, labelled: 4, loss: f64::INFINITY, top1: 3, top5: 4 }),
        timing: Timing { bare: vec![BarePass { forward_s: 1.0, backward_s: 2.0 }], ..Timing::default() },
        memory: Memory::default(),
        checks: Checks {
            determinism: Check::Held { compared: 3 },
            observer: Check::not_run("not asked for"),
        },
        noise: None,
        trace: None,
        planted: None,
    }
}

fn event(seq: u64) -> OperatorEvent {
    OperatorEvent {
        seq,
        phase: Phase::Forward,
        op: "linear".to_owned(),
        node: Some(3),
        path: "layers.0".to_owned(),
        start_ns: 5,
        duration_ns: 7,
        ..OperatorEvent::default()
    }
}

fn values() -> HostTensor {
    HostTensor::from_f64(DType::F32, vec![2], &[1.5, f64::NEG_INFINITY]).unwrap()
}

fn write(destination: &Path) -> Recording {
    let mut writer = Writer::create(destination).unwrap();
    writer.tensor("gradient/a", &values()).unwrap();
    writer.event(&event(0)).unwrap();
    writer.event(&event(1)).unwrap();
    writer.finish(manifest()).unwrap()
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn refused(destination: &Path) -> String {
    match Recording::open(destination).and_then(|r| r.verify()) {
        Ok(()) => panic!("it was read"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("out/candle");
    write(&destination);
    let recording = Recording::open(&destination).unwrap();
    recording.verify().unwrap();
    let read = recording.manifest();
    assert_eq!(read.quantities, manifest().quantities);
    assert!(read.loss.unwrap().is_nan());
    assert_eq!(read.evaluation, manifest().evaluation);
    assert_eq!(read.fingerprint, subject::example().fingerprint());
    assert_eq!(recording.tensor("gradient/a").unwrap().bytes(), values().bytes());
    assert_eq!(recording.events().unwrap(), [event(0), event(1)]);
    assert!(matches!(recording.tensor("gradient/b"), Err(RecordingError::Unknown { .. })));
    assert_eq!(read.timing.bare_s(), Some(3.0));
    let names: Vec<_> =
        fs::read_dir(dir.path().join("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["candle"], "nothing else is left");
}

#[test]
fn a_recording_replaces_an_older_one_whole() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("candle");
    write(&destination);
    let writer = Writer::create(&destination).unwrap();
    Recording::open(&destination).unwrap().verify().unwrap();
    let mut empty = manifest();
    empty.quantities.clear();
    writer.finish(empty).unwrap();
    let recording = Recording::open(&destination).unwrap();
    assert!(recording.quantities().is_empty() && !recording.has_tensor("gradient/a"));
    assert!(recording.events().unwrap().is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_half_written_recording_is_never_read() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("candle");
    let mut writer = Writer::create(&destination).unwrap();
    writer.tensor("gradient/a", &values()).unwrap();
    assert!(matches!(Recording::open(&destination), Err(RecordingError::NotThere { .. })));
    // As a killed process would leave it: no destructor runs.
    std::mem::forget(writer);
    assert!(matches!(Recording::open(&destination), Err(RecordingError::NotThere { .. })));
}

#[test]
fn what_a_killed_writer_left_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join(".candle.partial-x1");
    fs::create_dir(&left).unwrap();
    fs::write(left.join(TENSORS), "half").unwrap();
    fs::create_dir(dir.path().join(".candle-2.partial-x1")).unwrap();
    write(&dir.path().join("candle"));
    assert!(!left.exists());
    assert!(dir.path().join(".candle-2.partial-x1").exists(), "that of another recording stays");
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&dir.path().join("candle")).unwrap();
    writer.tensor("gradient/a", &values()).unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn two_writers_of_one_recording_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("candle");
    let _first = Writer::create(&destination).unwrap();
    assert!(matches!(Writer::create(&destination), Err(RecordingError::Locked { .. })));
    Writer::create(&dir.path().join("torch")).unwrap();
}

#[test]
fn a_directory_that_is_no_recording_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis"), "years of work").unwrap();
    fs::create_dir(dir.path().join("photos")).unwrap();
    for name in ["thesis", "photos"] {
        let error = Writer::create(&dir.path().join(name)).unwrap_err();
        assert!(matches!(error, RecordingError::Occupied { .. }), "{error}");
    }
}

#[test]
fn a_changed_tensor_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("candle");
    write(&destination);
    edit(&destination.join(TENSORS), |bytes| *bytes.last_mut().unwrap() ^= 1);
    let recording = Recording::open(&destination).unwrap();
    let error = recording.tensor("gradient/a").unwrap_err();
    assert!(matches!(&error, RecordingError::Damaged { tensor, .. } if tensor == "gradient/a"), "{error}");
}

#[test]
fn a_truncated_file_is_refused_whatever_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("candle");
    for file in [TENSORS, MANIFEST, TRACE] {
        write(&destination);
        let length = fs::metadata(destination.join(file)).unwrap().len();
        for keep in [0, 1, 7, 8, 9, length / 2, length - 1] {
            write(&destination);
            edit(&destination.join(file), |bytes| bytes.truncate(usize::try_from(keep).unwrap()));
            let message = refused(&destination);
            assert!(message.contains(file), "{file} cut to {keep}: {message}");
        }
        write(&destination);
        fs::remove_file(destination.join(file)).unwrap();
        refused(&destination);
        fs::remove_dir_all(&destination).unwrap();
    }
}

#[test]
fn an_edited_manifest_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("candle");
    write(&destination);
    let path = destination.join(MANIFEST);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"top1\": 3"));
    fs::write(&path, text.replace("\"top1\": 3", "\"top1\": 4")).unwrap();
    let message = refused(&destination);
    assert!(message.contains("changed after it was written"), "{message}");
}

#[test]
fn a_manifest_sealed_again_with_another_subject_is_refused_by_its_fingerprint() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("candle");
    write(&destination);
    let forged = Manifest { fingerprint: "0".repeat(64), ..manifest() };
    let text = seal::seal(&serde_json::to_string_pretty(&forged).unwrap());
    fs::write(destination.join(MANIFEST), text).unwrap();
    let message = refused(&destination);
    assert!(message.contains("fingerprint"), "{message}");
}

#[test]
fn a_newer_schema_is_refused_before_anything_else_of_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(MANIFEST);
    fs::write(&path, r#"{"schema_version": 2, "quantities": "in a form not known yet"}"#).unwrap();
    let error = Recording::open(dir.path()).unwrap_err();
    assert!(matches!(error, RecordingError::Newer { found: 2, newest: 1, .. }), "{error}");
    for text in ["", "{}", "[]", r#"{"schema_version": 0}"#, r#"{"schema_version": 1}"#, "\u{0}"] {
        fs::write(&path, text).unwrap();
        let error = Recording::open(dir.path()).unwrap_err();
        assert!(matches!(error, RecordingError::Malformed { .. }), "{text}: {error}");
    }
}

#[test]
fn tensor_file_and_manifest_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    write(&one);
    let mut writer = Writer::create(&two).unwrap();
    writer.tensor("gradient/a", &values().cast(DType::F64)).unwrap();
    writer.finish(manifest()).unwrap();
    fs::copy(two.join(TENSORS), one.join(TENSORS)).unwrap();
    let error = Recording::open(&one).unwrap_err();
    assert!(matches!(error, RecordingError::Disagrees { .. }), "{error}");

    let mut writer = Writer::create(&two).unwrap();
    writer.tensor("gradient/a", &values()).unwrap();
    writer.tensor("gradient/x", &values()).unwrap();
    writer.finish(manifest()).unwrap();
    fs::copy(two.join(TENSORS), one.join(TENSORS)).unwrap();
    let error = Recording::open(&one).unwrap_err();
    assert!(error.to_string().contains("gradient/x"), "{error}");
}

#[test]
fn a_value_without_its_tensor_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let destination = dir.path().join("candle");
    let error = Writer::create(&destination).unwrap().finish(manifest()).unwrap_err();
    assert!(error.to_string().contains("gradient/a"), "{error}");
    assert!(!destination.exists(), "it is refused before it gets its name");
}

#[test]
fn errors_of_the_file_system_say_what_to_do() {
    for (kind, advice) in [
        (std::io::ErrorKind::StorageFull, "free some space"),
        (std::io::ErrorKind::ReadOnlyFilesystem, "read-only"),
        (std::io::ErrorKind::PermissionDenied, "permissions"),
    ] {
        let error = RecordingError::Write { path: "out".into(), source: kind.into() };
        assert!(error.to_string().contains(advice) && error.to_string().contains("--out"), "{error}");
    }
}

#[test]
fn a_full_disk_is_a_clear_error() {
    // The kernel's own full device, where there is one.
    let full = Path::new("/dev/full");
    if full.exists() {
        let mut file = fs::File::options().write(true).open(full).unwrap();
        let source = std::io::Write::write_all(&mut file, b"x").unwrap_err();
        let error = RecordingError::Write { path: full.to_owned(), source };
        assert!(error.to_string().contains("free some space"), "{error}");
    }
}
