//! Wrong requests: exit code 2 (or 4), a message that says what to do, nothing half-written.

use std::fs;
use std::path::Path;

use super::{CANDLE, Checked, MLP, parity};

/// Fails with exit code 2 and a message with all these words, and leaves no table.
fn is_refused(checked: &Checked, words: &[&str]) {
    let stderr = checked.stderr();
    assert_eq!(checked.code(), 2, "{stderr}\n{}", checked.stdout());
    for word in words {
        assert!(stderr.contains(word), "`{word}` is not in: {stderr}");
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(!checked.file("table.json").exists());
}

fn copy_model(from: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(from)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_missing_model_directory_is_named() {
    is_refused(&Checked::new("no/such/model", &[]), &["no/such/model"]);
}

#[test]
fn an_unknown_engine_gets_a_suggestion() {
    is_refused(&Checked::new(MLP, &["--target", "candel:cpu@f32"]), &["candel", "candle"]);
}

#[test]
fn an_unknown_precision_gets_the_list() {
    is_refused(&Checked::new(MLP, &["--target", "candle:cpu@f31"]), &["f31", "bf16"]);
}

#[test]
fn the_reference_cannot_be_its_own_candidate() {
    is_refused(&Checked::new(MLP, &["--target", "reference@f32"]), &["reference"]);
}

#[test]
fn a_target_cannot_be_named_twice() {
    is_refused(&Checked::new(MLP, &["--target", CANDLE, "--target", CANDLE]), &["twice"]);
}

#[test]
fn an_absent_device_is_incomplete_and_says_why() {
    for target in ["candle:metal@f32", "candle:cuda@f32"] {
        let checked = Checked::new(MLP, &["--target", CANDLE, "--target", target]);
        assert_eq!(checked.code(), 4, "{}", checked.stdout());
        assert!(checked.stdout().contains("absent"), "{}", checked.stdout());
        let tolerated = Checked::new(MLP, &["--target", CANDLE, "--target", target, "--if-available"]);
        assert_eq!(tolerated.code(), 0, "{}", tolerated.stdout());
        assert!(tolerated.stdout().contains("absent"));
    }
}

#[test]
fn only_absent_targets_are_incomplete_even_if_absences_are_allowed() {
    let checked = Checked::new(MLP, &["--target", "candle:metal@f32", "--if-available"]);
    assert_eq!(checked.code(), 4, "{}", checked.stdout());
}

#[test]
fn a_batch_of_zero_is_out_of_range() {
    is_refused(&Checked::new(MLP, &["--batch", "0"]), &["--batch"]);
}

#[test]
fn a_batch_larger_than_the_data_is_refused_with_the_number_of_samples() {
    is_refused(&Checked::new(MLP, &["--batch", "4000"]), &["40"]);
}

#[test]
fn an_output_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let out = file.path().join("below").to_str().unwrap().to_owned();
    let output = parity(&["check", MLP, "--out", &out]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("below"));
}

#[test]
fn a_label_out_of_range_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    copy_model(MLP, &model);
    let path = model.join("validation.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    // Labels come before or after the inputs; find a label by its type: the last 8 bytes of
    // the I64 tensor are rewritten through the header's offsets.
    let header: usize = u64::from_le_bytes(bytes[..8].try_into().unwrap()).try_into().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let start = 8 + header + usize::try_from(json["labels"]["data_offsets"][0].as_u64().unwrap()).unwrap();
    bytes[start..start + 8].copy_from_slice(&77i64.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    is_refused(&Checked::new(model.to_str().unwrap(), &[]), &["validation.safetensors", "77"]);
}

#[test]
fn a_damaged_checkpoint_is_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    copy_model(MLP, &model);
    let path = model.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    is_refused(&Checked::new(model.to_str().unwrap(), &[]), &["model.safetensors"]);
}

#[test]
fn a_policy_with_an_unknown_key_is_refused_with_line_and_suggestion() {
    let dir = tempfile::tempdir().unwrap();
    let policy = dir.path().join("own.toml");
    fs::write(&policy, "schema = 1\nextends = \"default\"\n[run]\npower_flor = 0.2\n").unwrap();
    let path = policy.to_str().unwrap();
    is_refused(&Checked::new(MLP, &["--policy", path]), &["own.toml:4", "power_flor", "power_floor"]);
}

#[test]
fn a_fault_at_a_target_that_does_not_run_is_refused() {
    is_refused(&Checked::new(MLP, &["--target", CANDLE, "--plant", "nan@candle:cpu@f64"]), &["--target"]);
}
