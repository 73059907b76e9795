//! The table as Markdown, and the generated document.

use std::fmt::Write as _;

use super::terminal::summary;
use crate::conformance::sweep::FLOATS;
use crate::conformance::{Defect, Survey, Tally};

/// All surveys, for a comment or a file.
pub fn surveys(surveys: &[Survey]) -> String {
    let mut out = String::new();
    for survey in surveys {
        one(&mut out, survey);
    }
    out
}

/// `docs/operators.md`.
pub fn document(surveys: &[Survey]) -> String {
    let mut out = String::from(
        "# Operators\n\n\
         What each engine computes rightly, by operator and dtype: results and gradients against the f64\n\
         reference, over every layout, size and special value that has made a backend wrong before.\n\
         Written by `parity ops --target candle:cpu --target torch:cpu --document docs/operators.md`; do not\n\
         edit. A cell is results / gradients; *coarse* is as accurate as sums and\n\
         intermediate results in the 16-bit dtype are, not as with an f32 accumulator; `-` is unsupported, `?` could not be tried,\n\
         nothing means that the operator has none. What is wrong is listed below each table, with the\n\
         command that repeats the smallest case; `docs/known-deviations.md` explains causes.\n\n",
    );
    for survey in surveys {
        one(&mut out, survey);
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}

fn word(tally: &Tally) -> &'static str {
    match tally.word() {
        "WRONG" => "**wrong**",
        "right" => "right",
        "coarse" => "coarse",
        "unsupported" => "-",
        "untested" => "?",
        _ => "",
    }
}

fn one(out: &mut String, survey: &Survey) {
    let who = survey
        .engine
        .as_ref()
        .map_or_else(|| "absent".to_owned(), |e| format!("{} {}, {}", e.engine, e.version, e.device));
    let _ = writeln!(out, "## {} ({who})\n", survey.target);
    for note in &survey.notes {
        let _ = writeln!(out, "{note}\n");
    }
    if survey.operators.is_empty() {
        return;
    }
    let _ = writeln!(out, "{}\n", summary(survey));
    out.push_str("| operator |");
    for dtype in FLOATS {
        let _ = write!(out, " {dtype} |");
    }
    out.push_str(" how |\n|---|");
    out.push_str(&"---|".repeat(FLOATS.len() + 1));
    out.push('\n');
    for row in &survey.operators {
        let _ = write!(out, "| `{}` |", row.name());
        for dtype in FLOATS {
            let cell = row.cells.get(&dtype).copied().unwrap_or_default();
            let (forward, backward) = (word(&cell.forward), word(&cell.backward));
            let text =
                if backward.is_empty() { forward.to_owned() } else { format!("{forward} / {backward}") };
            let _ = write!(out, " {text} |");
        }
        let how: Vec<&str> = row.decomposed.iter().map(String::as_str).collect();
        let _ = writeln!(out, " {} |", how.join("; "));
    }
    out.push('\n');
    for row in survey.operators.iter().filter(|row| !row.modes.is_empty()) {
        let modes: Vec<&str> = row.modes.values().map(String::as_str).collect();
        let _ = writeln!(out, "`{}` computes with: {}.\n", row.name(), modes.join("; "));
    }
    for row in survey.wrong() {
        let _ = writeln!(out, "- `{}`", row.name());
        for defect in &row.defects {
            describe(out, survey, defect);
        }
    }
    out.push('\n');
}

fn describe(out: &mut String, survey: &Survey, defect: &Defect) {
    let dtypes: Vec<&str> = defect.dtypes.iter().map(|dtype| dtype.name()).collect();
    let _ = write!(out, "  - {}: {} in {}", defect.quantity, defect.fault.name(), dtypes.join(", "));
    if let Some(known) = &defect.known {
        let _ = write!(out, "; {} ([reference]({}))", known.reason, known.reference);
    }
    let _ = writeln!(out, ". `parity ops --target {} --case '{}'`", survey.target, defect.smallest);
}
