//! What is printed and written.

use super::{CANDLE, Checked, MLP, VIT, command, parity};

#[test]
fn plain_output_fits_80_columns_and_has_no_escape_codes() {
    let checked = Checked::new(VIT, &["--target", CANDLE, "--all-rows"]);
    for line in checked.stdout().lines() {
        assert!(line.chars().count() <= 80, "{}: {line}", line.chars().count());
        assert!(!line.contains('\u{1b}'), "{line}");
    }
    assert_eq!(checked.stderr(), "");
}

#[test]
fn colour_is_there_when_asked_for() {
    let checked = Checked::new(MLP, &["--target", CANDLE, "--color", "always"]);
    assert!(checked.stdout().contains('\u{1b}'));
}

#[test]
fn json_is_the_table_and_nothing_else() {
    let checked = Checked::new(MLP, &["--target", CANDLE, "--format", "json"]);
    let printed: serde_json::Value = serde_json::from_str(&checked.stdout()).unwrap();
    assert_eq!(printed, checked.table());
    assert_eq!(printed["schema_version"], 1);
    assert_eq!(printed["conclusion"]["exit_code"], 0);
}

#[test]
fn markdown_has_the_verdict_first() {
    let checked = Checked::new(MLP, &["--target", CANDLE, "--format", "markdown"]);
    assert!(checked.stdout().starts_with("## "), "{}", checked.stdout());
    assert!(checked.file("table.md").exists() && checked.file("table.txt").exists());
}

#[test]
fn every_band_leads_to_a_rule_and_a_line_of_a_policy() {
    let checked = Checked::new(MLP, &["--target", CANDLE]);
    let table = checked.table();
    for row in table["findings"].as_array().unwrap().iter().filter(|row| !row["band"].is_null()) {
        let line = row["band"]["line"].as_str().unwrap();
        assert!(line.contains(".toml:"), "{row:#}");
        assert!(!row["band"]["reason"].as_str().unwrap().is_empty());
    }
}

#[test]
fn the_second_check_reuses_finished_recordings_and_says_the_same() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().to_str().unwrap();
    let arguments = ["check", MLP, "--target", CANDLE, "--out", path, "--format", "json"];
    let table = |output: std::process::Output| -> serde_json::Value {
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let first = table(parity(&arguments));
    let second = table(parity(&arguments));
    assert_eq!(first["targets"][0]["status"], "ran");
    assert_eq!(second["targets"][0]["status"], "reused");
    assert_eq!(first["findings"], second["findings"]);
}

#[test]
fn every_parameter_has_a_row_for_its_gradient() {
    let checked = Checked::new(VIT, &["--target", CANDLE]);
    let table = checked.table();
    let rows = table["findings"].as_array().unwrap();
    let gradients = rows.iter().filter(|r| r["quantity"].as_str().unwrap().starts_with("gradient/")).count();
    assert_eq!(gradients, 72);
    for name in ["loss", "logits", "metric/loss", "metric/top1", "metric/top5", "input_gradient/pixel_values"]
    {
        assert_eq!(checked.row(name)["verdict"], "within", "{name}");
    }
}

#[test]
fn no_personal_data_is_written() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().to_str().unwrap();
    let output = command(&["check", MLP, "--target", CANDLE, "--out", path, "--no-cache"])
        .env("USER", "planted-user-name")
        .env("LOGNAME", "planted-user-name")
        .env("HOSTNAME", "planted-host-name")
        .output()
        .unwrap();
    let mut texts = vec![String::from_utf8_lossy(&output.stdout).into_owned()];
    let mut stack = vec![out.path().to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                stack.push(path);
            } else {
                texts.push(String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
            }
        }
    }
    assert!(texts.len() > 4);
    for text in texts {
        for secret in ["planted-user-name", "planted-host-name"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn policy_show_prints_bands_with_the_line_that_set_each() {
    let output = parity(&["policy", "show", VIT]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("gradient/classifier.weight") && text.contains("default.toml:"), "{text}");
}

#[test]
fn a_program_is_written_and_read_back() {
    let output = parity(&["program", MLP]);
    let program: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((program["name"].as_str(), program["schema_version"].as_u64()), (Some("mlp"), Some(1)));
}
