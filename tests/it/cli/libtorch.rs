//! libtorch as a target of the real binary: engines side by side, switches, memory, and what
//! is said where it is missing.

use std::fs;
use std::process::Command;

use super::{CANDLE, Checked, MLP, VIT};

const TORCH: &str = "torch:cpu@f32";

#[test]
fn three_engines_agree_side_by_side() {
    let checked = Checked::new(VIT, &["--target", CANDLE, "--target", TORCH, "--self-check", "always"]);
    assert_eq!(checked.code(), 0, "{}\n{}", checked.stdout(), checked.stderr());
    let table = checked.table();
    assert_eq!(table["reference"]["target"], "reference@f32");
    for target in table["targets"].as_array().unwrap() {
        assert_eq!(target["counts"]["within"], 140, "{target:#}");
        assert_eq!(target["observer_equal"], true, "{target:#}");
        assert_eq!(target["repeat_equal"], true, "{target:#}");
    }
}

#[test]
fn a_deviation_of_one_engine_follows_the_engine() {
    // candle's constants of the derivative of GELU have f32 digits: a real defect in f64.
    let checked = Checked::new(VIT, &["--target", "candle:cpu@f64", "--target", "torch:cpu@f64"]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    let table = checked.table();
    let rows = table["findings"].as_array().unwrap();
    let outside: Vec<_> = rows.iter().filter(|row| row["verdict"] == "outside").collect();
    assert!(outside.len() > 10);
    for row in outside {
        assert_eq!(row["target"], "candle:cpu@f64", "{row:#}");
        assert_eq!(row["attribution"]["follows"], "engine", "{row:#}");
        assert!(row["attribution"]["because"].as_str().unwrap().contains("torch:cpu@f64 agrees"), "{row:#}");
    }
    assert!(checked.stdout().contains("follows the engine"));
}

#[test]
fn tf32_switched_on_behind_an_f32_targets_back_is_read_off_the_recorded_switch() {
    let checked = Checked::new(MLP, &["--target", TORCH, "--plant", &format!("tf32@{TORCH}")]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    let row = checked.row("target/modes");
    assert_eq!((&row["verdict"], &row["cause"]), (&"outside".into(), &"mode-mismatch".into()));
    assert!(row["notes"][0].as_str().unwrap().contains("allow_tf32_matmul"), "{row:#}");
    // The same switch under a precision that declares it is no finding.
    let checked = Checked::new(MLP, &["--target", "torch:cpu@tf32"]);
    assert_eq!(checked.code(), 0, "{}", checked.stdout());
}

#[test]
fn a_device_that_is_not_here_is_absent_with_its_reason_and_three_answers() {
    let target = if cfg!(target_os = "macos") { "torch:cuda:0@f32" } else { "torch:mps@f32" };
    let checked = Checked::new(MLP, &["--target", target, "--target", TORCH]);
    assert_eq!(checked.code(), 4, "{}", checked.stdout());
    let table = checked.table();
    let absent = &table["targets"][0];
    assert_eq!(absent["status"], "absent");
    assert_eq!(absent["device"]["built"], false);
    assert_eq!(absent["device"]["available"], false);
    assert!(absent["reason"].as_str().unwrap().len() > 20, "{absent:#}");
    assert!(table["targets"][1]["counts"]["within"].as_u64() > Some(5));
    let checked = Checked::new(MLP, &["--target", target, "--target", TORCH, "--if-available"]);
    assert_eq!(checked.code(), 0);
}

#[test]
fn a_target_that_runs_out_of_memory_dies_alone() {
    for target in [TORCH, CANDLE] {
        let limit = format!("1@{target}");
        let other = if target == TORCH { CANDLE } else { TORCH };
        let checked = Checked::new(MLP, &["--target", target, "--target", other, "--memory-limit", &limit]);
        assert_eq!(checked.code(), 1, "{}", checked.stdout());
        let table = checked.table();
        let row =
            table["findings"].as_array().unwrap().iter().find(|row| row["cause"] == "died").unwrap().clone();
        assert_eq!(row["target"], *target, "{row:#}");
        assert!(table["targets"][1]["counts"]["within"].as_u64() > Some(5), "{}", checked.stdout());
        // The other's recording is whole.
        let recording = checked.file("recordings").join(other.replace(':', "-")).join("recording.json");
        assert!(recording.exists());
    }
    let checked = Checked::new(MLP, &["--memory-limit", "much"]);
    assert_eq!(checked.code(), 2, "{}", checked.stderr());
}

/// A copy of the binary that looks for libtorch where there is none.
#[cfg(target_os = "linux")]
#[test]
fn where_libtorch_is_gone_the_loader_says_what_to_run() {
    let binary = env!("CARGO_BIN_EXE_parity");
    let place = tensor_parity::engine::torch::LINKED_LIBTORCH.as_bytes();
    let mut bytes = fs::read(binary).unwrap();
    let mut patched = 0;
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(place.len()).position(|window| window == place) {
        bytes[at + found..at + found + place.len()].fill(b'x');
        at += found + place.len();
        patched += 1;
    }
    assert!(patched > 0);
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("parity");
    fs::write(&copy, &bytes).unwrap();
    fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new(&copy).arg("--version").env_remove("LD_LIBRARY_PATH").output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("libtorch") && words.contains("run scripts/setup-libtorch"), "{words}");
    // In place it starts without any variable.
    let output = Command::new(binary).arg("--version").env_remove("LD_LIBRARY_PATH").output().unwrap();
    assert!(output.status.success());
}
