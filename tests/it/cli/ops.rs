//! `parity ops`, as a user calls it.

use std::path::Path;

use serde_json::Value;

use super::parity;

fn code(output: &std::process::Output) -> i32 {
    output.status.code().expect("no signal")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_operator_that_is_right_ends_with_0_and_says_so() {
    let output = parity(&["ops", "--target", "candle:cpu", "--op", "sigmoid", "--dtype", "f64", "--quick"]);
    let stdout = text(&output.stdout);
    assert_eq!(code(&output), 0, "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("sigmoid") && stdout.contains("1 operators: 1 right, 0 wrong"), "{stdout}");
}

#[test]
fn a_wrong_operator_ends_with_1_and_with_a_command_that_repeats_it() {
    let output = parity(&["ops", "--target", "candle:cpu", "--op", "relu", "--dtype", "f32", "--quick"]);
    let stdout = text(&output.stdout);
    assert_eq!(code(&output), 1, "{stdout}");
    let command = stdout.lines().find_map(|line| line.trim().strip_prefix("parity ")).expect("a command");
    assert_eq!(command, "ops --target candle:cpu --case 'relu+nan:x@f32'");
    let case = command.split('\'').nth(1).unwrap();
    let again = parity(&["ops", "--target", "candle:cpu", "--case", case]);
    let stdout = text(&again.stdout);
    assert_eq!(code(&again), 1, "{stdout}");
    assert!(stdout.contains("0 instead of NaN"), "{stdout}");
}

#[test]
fn json_has_every_operator_with_its_counts() {
    let arguments = ["ops", "--target", "candle:cpu", "--op", "mm", "--op", "relu", "--quick", "--json"];
    let output = parity(&arguments);
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    let target = &table["targets"][0];
    assert_eq!(target["engine"]["engine"], "candle");
    let names: Vec<&str> =
        target["operators"].as_array().unwrap().iter().map(|row| row["operator"].as_str().unwrap()).collect();
    assert_eq!(names, ["mm", "relu"]);
    let relu = &target["operators"][1];
    assert!(relu["cells"]["f32"]["forward"]["wrong"].as_u64().unwrap() > 0);
    assert!(relu["defects"][0]["known"]["reference"].is_string(), "{relu:#}");
}

#[test]
fn markdown_names_what_is_wrong() {
    let output =
        parity(&["ops", "--target", "candle:cpu", "--op", "relu", "--dtype", "f32", "--quick", "--markdown"]);
    let stdout = text(&output.stdout);
    assert!(stdout.contains("| `relu` |") && stdout.contains("**wrong** / **wrong**"), "{stdout}");
}

#[test]
fn wrong_requests_end_with_2_and_say_what_to_do() {
    for (arguments, part) in [
        (&["ops", "--op", "sofmax"][..], "did you mean `softmax`"),
        (&["ops", "--dtype", "f12"], "f12"),
        (&["ops", "--dtype", "i64"], "f64, f32, f16 or bf16"),
        (&["ops", "--target", "candle:cpu", "--case", "relu+nan:y@f32"], "relu+nan:x@f32"),
        (&["ops", "--target", "candel:cpu"], "candle"),
        (&["ops", "--target", "candle:cpu@amp-f16"], "--dtype"),
        (&["ops", "--target", "reference"], "compared with"),
    ] {
        let output = parity(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 2, "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_target_that_is_absent_ends_with_4() {
    let output = parity(&["ops", "--target", "candle:metal", "--op", "relu", "--quick"]);
    assert_eq!(code(&output), 4, "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Operators, dtypes and what is declared are held exactly; what the quick selection finds
/// wrong must be wrong in the document. The full sweep, which the document is made with, takes
/// minutes and is not repeated here.
#[test]
fn the_document_of_operators_is_up_to_date() {
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operators.md"))
        .expect("docs/operators.md");
    let section = document.split("## ").find(|part| part.starts_with("candle:cpu")).expect("a section");
    let output = parity(&["ops", "--target", "candle:cpu", "--quick", "--markdown"]);
    let found = text(&output.stdout);
    let heading = |text: &str| text.lines().next().unwrap().trim_start_matches("## ").to_owned();
    assert_eq!(heading(section), heading(&found), "another version: write the document again");
    let rows = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
    };
    let (written, found) = (rows(section), rows(&found));
    assert_eq!(written.len(), found.len(), "operators differ: write the document again");
    for (written, found) in written.iter().zip(&found) {
        assert_eq!(written[1], found[1]);
        for (written_cell, cell) in written[2..6].iter().zip(&found[2..6]) {
            for (before, now) in written_cell.split(" / ").zip(cell.split(" / ")) {
                let agree = (before == "-") == (now == "-") && (now != "**wrong**" || before == "**wrong**");
                assert!(agree, "{}: `{written_cell}` in the document, `{cell}` now", written[1]);
            }
        }
    }
}
