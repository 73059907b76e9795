//! Fallbacks and device faults on the software MPS device, through the real binary: a real
//! dispatcher sends operators to the CPU, and the check must not be green.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Checked, MLP, VIT, command, parity};

const MPS: &str = "torch:mps-emulated:0@f32";

/// A check of `model` on the software device with these deficiencies.
fn emulated(model: &str, deficiencies: &[&str], more: &[&str]) -> Checked {
    let mut arguments = vec!["--target", MPS];
    for deficiency in deficiencies {
        arguments.extend(["--emulate", deficiency]);
    }
    arguments.extend(more);
    Checked::new(model, &arguments)
}

/// Quantities of rows with this cause.
fn rows_because(checked: &Checked, cause: &str) -> Vec<Value> {
    let table = checked.table();
    let rows = table["findings"].as_array().unwrap();
    rows.iter().filter(|row| row["cause"] == cause).cloned().collect()
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["quantity"].as_str().unwrap()).collect()
}

/// Checksums of all tensors of the recording.
fn checksums(checked: &Checked) -> Value {
    let path = checked.file("recordings/torch-mps-emulated-0@f32/recording.json");
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["tensors"].clone()
}

/// The first activation in program order that is not within its band.
fn first_outside(checked: &Checked) -> Option<String> {
    let path = checked.file("recordings/torch-mps-emulated-0@f32/recording.json");
    let manifest: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let outside = checked.rows_with("outside");
    let order =
        manifest["quantities"].as_array().unwrap().iter().map(|q| q["name"].as_str().unwrap().to_owned());
    order.filter(|name| name.starts_with("activation/")).find(|name| outside.contains(name))
}

#[test]
fn a_device_without_deficiencies_is_green_and_called_emulated_everywhere() {
    let checked = emulated(VIT, &[], &["--self-check", "always"]);
    assert_eq!(checked.code(), 0, "{}\n{}", checked.stdout(), checked.stderr());
    let table = checked.table();
    let target = &table["targets"][0];
    assert_eq!(target["emulated"], true);
    assert_eq!(target["device"], serde_json::json!({"built": true, "available": true, "verified": true}));
    assert_eq!(
        (&target["repeat_equal"], &target["observer_equal"]),
        (&Value::Bool(true), &Value::Bool(true))
    );
    assert_eq!(target["placement"]["steps"], 2);
    assert_eq!(target["placement"]["fallbacks"], serde_json::json!([]));
    // No row, and no line of any form, has the name of the real device without the word.
    let rows = table["findings"].as_array().unwrap();
    assert!(rows.len() > 100 && rows.iter().all(|row| row["target"].as_str().unwrap().contains("emulated")));
    for text in [checked.stdout(), fs::read_to_string(checked.file("table.md")).unwrap()] {
        for word in text.split_whitespace().filter(|word| word.contains("mps:") || word.ends_with("mps")) {
            assert!(word.contains("emulated"), "{word}");
        }
    }
}

#[test]
fn a_forward_fallback_is_red_although_every_bit_is_the_same() {
    let clean = emulated(VIT, &[], &[]);
    let checked = emulated(VIT, &["unsupported@aten::_softmax"], &[]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    assert_eq!(checksums(&clean), checksums(&checked));
    let rows = rows_because(&checked, "fallback");
    assert_eq!(rows.len(), 4);
    for (row, layer) in rows.iter().zip(0..) {
        assert_eq!(row["verdict"], "outside");
        let name = format!("placement/forward/vit.encoder.layer.{layer}.attention.attention/aten::_softmax");
        assert!(names(&rows).contains(&name.as_str()), "{:?}", names(&rows));
    }
    // Nothing but the placement is wrong.
    assert_eq!(checked.table()["counts"]["outside"], 4);
    assert_eq!(checked.table()["counts"]["within"], clean.table()["counts"]["within"]);
    let fallback = &checked.table()["targets"][0]["placement"]["fallbacks"][0];
    assert_eq!(fallback["kind"], "operator-on-cpu");
    assert_eq!(fallback["shapes"], serde_json::json!([[16, 4, 17, 17]]));
    assert_eq!(fallback["calls"], serde_json::json!([1, 1]));
    // 16·4·17·17 f32 up in each of two steps; down as well the buffer for the result.
    assert_eq!(
        (fallback["bytes_to_host"].as_u64(), fallback["bytes_to_device"].as_u64()),
        (Some(295_936), Some(147_968))
    );
    assert!(fallback["share"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_backward_only_fallback_is_found_in_the_module_of_its_forward() {
    let checked = emulated(VIT, &["unsupported@aten::_softmax_backward_data"], &[]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    let rows = rows_because(&checked, "fallback");
    assert_eq!(rows.len(), 4, "{:?}", names(&rows));
    for name in names(&rows) {
        assert!(name.starts_with("placement/backward/vit.encoder.layer."), "{name}");
        assert!(name.ends_with("attention.attention/aten::_softmax_backward_data"), "{name}");
    }
}

#[test]
fn a_fallback_in_one_step_of_many_is_found_in_that_step() {
    let checked = emulated(MLP, &["fallback-every:7@aten::relu"], &["--steps", "4", "--synthetic-data"]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    let table = checked.table();
    let placement = &table["targets"][0]["placement"];
    assert_eq!(placement["steps"], 4);
    let fallbacks = placement["fallbacks"].as_array().unwrap();
    let calls: Vec<Vec<u64>> = fallbacks
        .iter()
        .map(|f| f["calls"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect())
        .collect();
    assert!(calls.iter().all(|steps| steps.contains(&0) && steps.iter().sum::<u64>() > 0), "{calls:?}");
    assert!(rows_because(&checked, "fallback")[0]["notes"][0].as_str().unwrap().contains("of 4 steps"));
}

#[test]
fn an_allow_listed_fallback_is_usable_with_a_known_cpu_share_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let listed = write(
        "listed.toml",
        "schema = 1\nextends = \"default\"\n[placement]\nmode = \"allow-listed\"\n\
         [[placement.allow]]\noperator = \"aten::_softmax\"\nreason = \"known since the spring\"\n",
    );
    let other = write(
        "other.toml",
        "schema = 1\nextends = \"default\"\n[placement]\nmode = \"allow-listed\"\n\
         [[placement.allow]]\noperator = \"aten::gelu\"\nreason = \"another operator\"\n",
    );
    let report = write("report.toml", "schema = 1\nextends = \"default\"\n[placement]\nmode = \"report\"\n");
    let under = |policy: &str| emulated(VIT, &["unsupported@aten::_softmax"], &["--policy", policy]);
    for policy in [&listed, &report] {
        let checked = under(policy);
        assert_eq!(checked.code(), 0, "{}", checked.stdout());
        assert!(checked.stdout().contains("usable with a known CPU share"), "{}", checked.stdout());
        assert!(!checked.stdout().contains("\nparity:"));
        assert_eq!(checked.table()["counts"]["allowed"], 4);
    }
    let row = rows_because(&under(&listed), "fallback")[0].clone();
    assert!(row["band"]["line"].as_str().unwrap().contains("listed.toml:"), "{row:#}");
    assert!(row["notes"][1].as_str().unwrap().contains("known since the spring"), "{row:#}");
    assert_eq!(under(&other).code(), 1);
}

#[test]
fn the_fallback_switch_of_libtorch_is_recorded_and_makes_another_recording() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().to_str().unwrap();
    let arguments = ["check", MLP, "--target", MPS, "--out", path];
    let run = |value: Option<&str>| {
        let mut command = command(&arguments);
        match value {
            Some(value) => command.env("PYTORCH_ENABLE_MPS_FALLBACK", value),
            None => command.env_remove("PYTORCH_ENABLE_MPS_FALLBACK"),
        };
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let table: Value = serde_json::from_slice(&fs::read(out.path().join("table.json")).unwrap()).unwrap();
        table["targets"][0].clone()
    };
    let unset = run(None);
    assert_eq!(unset["modes"]["PYTORCH_ENABLE_MPS_FALLBACK"], "unset");
    let set = run(Some("1"));
    assert_eq!((&set["modes"]["PYTORCH_ENABLE_MPS_FALLBACK"], &set["status"]), (&"1".into(), &"ran".into()));
    assert!(set["notes"].to_string().contains("PYTORCH_ENABLE_MPS_FALLBACK is set"), "{}", set["notes"]);
    assert_eq!(run(Some("1"))["status"], "reused");
}

/// A fault of one operator is first seen at the module that runs it.
fn is_located(model: &str, deficiency: &str, expected: &str) {
    let checked = emulated(model, &[deficiency], &[]);
    assert_eq!(checked.code(), 1, "{deficiency}\n{}", checked.stdout());
    let first = first_outside(&checked).unwrap_or_default();
    assert!(first.starts_with(expected), "{deficiency}: {first}, not {expected}\n{}", checked.stdout());
    assert!(checked.stdout().contains("planted on purpose"), "{}", checked.stdout());
    let struck = checked.table()["targets"][0]["modes"]["emulated_faults_struck"].clone();
    assert_ne!(struck, "0");
}

#[test]
fn the_tail_of_the_last_block_that_is_not_computed_is_located() {
    is_located(VIT, "tail-zero:1000@aten::gelu", "activation/vit.encoder.layer.0.intermediate");
    is_located(VIT, "tail-stale:1000@aten::gelu", "activation/vit.encoder.layer.0.intermediate");
}

#[test]
fn half_accumulation_is_located() {
    is_located(VIT, "half-accumulation@aten::addmm", "activation/vit.encoder.layer.0.attention.attention");
}

#[test]
fn a_transposed_input_read_as_contiguous_is_located_from_the_last_attention_backwards() {
    // Attention's forward makes its operands contiguous, its backward does not: gradients are
    // wrong from the last attention backwards, and nothing else.
    let checked = emulated(VIT, &["transposed-as-contiguous@aten::bmm"], &[]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    assert_eq!(first_outside(&checked), None);
    let outside = checked.rows_with("outside");
    let attention = "gradient/vit.encoder.layer.3.attention.attention.value.weight";
    assert!(outside.iter().any(|name| name == attention), "{outside:?}");
    let later = ["layer.3.attention.output", "layer.3.intermediate", "layer.3.output", "classifier"];
    assert!(!outside.iter().any(|name| later.iter().any(|part| name.contains(part))), "{outside:?}");
}

#[test]
fn an_ignored_offset_of_a_view_is_found() {
    // Attention's heads are views of one tensor; the class token is one of a longer sequence.
    let checked = emulated(VIT, &["ignore-storage-offset@device"], &[]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    assert_ne!(checked.table()["targets"][0]["modes"]["emulated_faults_struck"], "0");
}

#[test]
fn a_gradient_not_reduced_over_the_broadcast_dimension_is_found_in_gradients_alone() {
    let checked = emulated(VIT, &["broadcast-not-reduced@aten::sum"], &[]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    let outside = checked.rows_with("outside");
    assert!(outside.iter().any(|name| name.starts_with("gradient/")), "{outside:?}");
    assert!(!outside.iter().any(|name| name.starts_with("activation/") || name == "loss"), "{outside:?}");
}

#[test]
fn one_nan_and_a_scale_of_a_ten_thousandth_are_located() {
    is_located(VIT, "one-nan@aten::gelu", "activation/vit.encoder.layer.0.intermediate");
    is_located(VIT, "scale:1e-4@aten::gelu", "activation/vit.encoder.layer.0.intermediate");
}

#[test]
fn a_device_that_returns_zeros_answers_the_canary_wrong() {
    let checked = emulated(MLP, &["zeroed@device"], &[]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    let row = checked.row("target/canary");
    assert_eq!((&row["verdict"], &row["cause"]), (&"invalid".into(), &"canary".into()));
    assert_eq!(checked.table()["targets"][0]["device"]["verified"], false);
    assert!(row["notes"][0].as_str().unwrap().contains("matmul in f32"), "{row:#}");
}

#[test]
fn a_device_that_fails_at_the_first_allocation_is_a_row_and_not_a_crash() {
    let checked = emulated(MLP, &["fail-allocation@device"], &["--target", "torch:cpu@f32"]);
    assert_eq!(checked.code(), 1, "{}", checked.stdout());
    let table = checked.table();
    let row =
        table["findings"].as_array().unwrap().iter().find(|row| row["cause"] == "died").unwrap().clone();
    assert_eq!(row["target"], MPS);
    assert!(row["notes"][0].as_str().unwrap().contains("stage `canary`"), "{row:#}");
    assert!(table["targets"][1]["counts"]["within"].as_u64() > Some(5));
}

#[test]
fn a_fault_that_never_struck_proves_nothing() {
    let checked = emulated(MLP, &["zeroed@aten::_softmax_backward_data"], &[]);
    assert_eq!(checked.code(), 4, "{}", checked.stdout());
    assert_eq!(checked.row("target/planted")["verdict"], "unchecked");
}

#[test]
fn deficiencies_are_for_the_software_device_alone() {
    let checked = Checked::new(MLP, &["--target", "torch:cpu@f32", "--emulate", "zeroed@device"]);
    assert_eq!(checked.code(), 2);
    assert!(checked.stderr().contains("torch:mps-emulated"), "{}", checked.stderr());
    let checked = emulated(MLP, &["gremlin@aten::mm"], &[]);
    assert_eq!(checked.code(), 2);
    assert!(checked.stderr().contains("half-accumulation"), "{}", checked.stderr());
}

#[test]
fn f64_is_declared_as_absent_on_the_device_and_is_no_pass() {
    let checked = Checked::new(MLP, &["--target", "torch:mps-emulated@f64"]);
    assert_eq!(checked.code(), 4, "{}", checked.stdout());
    assert_eq!(checked.table()["counts"]["within"], 0);
    assert!(checked.table()["counts"]["skipped"].as_u64() > Some(5));
}

#[test]
fn a_trace_lists_operators_devices_transfers_and_fallbacks() {
    let dir = tempfile::tempdir().unwrap();
    let chrome = dir.path().join("trace.json");
    let chrome_text = chrome.to_str().unwrap();
    let trace = |more: &[&str]| {
        let mut all = vec!["trace", VIT, "--target", MPS, "--steps", "3"];
        all.extend(more);
        let output = parity(&all);
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text, _) = trace(&["--chrome", chrome_text]);
    assert_eq!(code, Some(0), "{text}");
    for part in
        ["emulated", "aten::addmm", "backward", "nothing: every operator ran on mps-emulated:0", "none"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let events: Value = serde_json::from_slice(&fs::read(&chrome).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    assert!(
        events.iter().any(|e| e["ph"] == "X" && e["name"] == "aten::gelu" && e["dur"].as_f64() > Some(0.0))
    );
    let (code, text, _) = trace(&["--format", "json", "--emulate", "unsupported@aten::gelu"]);
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["placement"]["fallbacks"].as_array().unwrap().len(), 4);
    assert_eq!(report["placement"]["fallbacks"][0]["calls"], serde_json::json!([1, 1, 1]));
    assert_eq!(report["summary"]["transfers"].as_array().unwrap().len(), 2);
    // A wrong file name is told before anything is lost.
    let (code, _, error) = trace(&["--chrome", "/no/such/directory/x.json"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("/no/such/directory/x.json"), "{error}");
}

#[test]
fn a_trace_of_a_recording_is_shown_without_running_anything() {
    let checked = emulated(MLP, &[], &[]);
    let recording = checked.file("recordings/torch-mps-emulated-0@f32");
    let output = parity(&["trace", recording.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with(&format!("trace of {MPS}")), "{text}");
    let reference = checked.file("recordings/reference@f32");
    let output = parity(&["trace", reference.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    let output = parity(&["trace", MLP]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--target"));
    assert!(Path::new(MLP).exists());
}
