//! The table on a terminal.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use crate::conformance::sweep::FLOATS;
use crate::conformance::{Defect, OperatorRow, Survey, Tally};

/// All surveys, one after the other.
pub fn surveys(surveys: &[Survey], width: usize, colour: bool) -> String {
    let mut out = String::new();
    for survey in surveys {
        one(&mut out, survey, width, colour);
    }
    if surveys.is_empty() {
        out.push_str("no engine is here; build with --features torch, or name a --target\n");
    }
    out
}

fn paint(text: &str, colour: Option<AnsiColor>, on: bool) -> String {
    match colour.filter(|_| on) {
        Some(colour) => {
            let style = Style::new().fg_color(Some(colour.into())).bold();
            format!("{style}{text}{style:#}")
        }
        None => text.to_owned(),
    }
}

/// One word for a direction.
fn word(tally: &Tally) -> (&'static str, Option<AnsiColor>) {
    match tally.word() {
        "WRONG" => ("WRONG", Some(AnsiColor::Red)),
        "coarse" => ("coarse", Some(AnsiColor::Yellow)),
        "right" => ("right", Some(AnsiColor::Green)),
        "unsupported" => ("-", None),
        "untested" => ("?", Some(AnsiColor::Yellow)),
        _ => ("", None),
    }
}

fn one(out: &mut String, survey: &Survey, width: usize, colour: bool) {
    let who = survey.engine.as_ref().map_or_else(
        || "absent".to_owned(),
        |e| {
            format!(
                "{} {} on {}{}",
                e.engine,
                e.version,
                e.device,
                if e.emulated { " (emulated)" } else { "" }
            )
        },
    );
    let _ = writeln!(
        out,
        "{}  {who}  {} trials",
        paint(&survey.target, Some(AnsiColor::Cyan), colour),
        survey.trials
    );
    for note in &survey.notes {
        let _ = writeln!(out, "  {note}");
    }
    let names = survey.operators.iter().map(|row| row.name().chars().count()).max().unwrap_or(0);
    if !survey.operators.is_empty() {
        let _ = write!(out, "\n{:names$}", "forward backward");
        for dtype in FLOATS {
            let _ = write!(out, "  {:<13}", dtype.name());
        }
        out.push('\n');
    }
    for row in &survey.operators {
        let _ = write!(out, "{:names$}", row.name());
        for dtype in FLOATS {
            let cell = row.cells.get(&dtype).copied().unwrap_or_default();
            out.push_str("  ");
            for (tally, width) in [(cell.forward, 7), (cell.backward, 6)] {
                let (text, paint_in) = word(&tally);
                let _ = write!(out, "{}{:pad$}", paint(text, paint_in, colour), "", pad = width - text.len());
            }
        }
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    let modes = survey.operators.iter().filter(|row| !row.modes.is_empty());
    for (position, row) in modes.enumerate() {
        let title = if position == 0 { "\ncomputes with\n" } else { "" };
        let modes: Vec<String> = row.modes.values().cloned().collect();
        let _ = writeln!(out, "{title}  {:names$}  {}", row.name(), modes.join("; "));
    }
    let wrong: Vec<&OperatorRow> = survey.wrong().collect();
    for row in &wrong {
        let _ = writeln!(out, "\n{}", paint(&row.name(), Some(AnsiColor::Red), colour));
        for defect in &row.defects {
            describe(out, survey, defect, width);
        }
    }
    let _ = writeln!(out, "\n{}\n", summary(survey));
}

fn describe(out: &mut String, survey: &Survey, defect: &Defect, width: usize) {
    let dtypes: Vec<&str> = defect.dtypes.iter().map(|dtype| dtype.name()).collect();
    let size = defect.floors.map(|floors| format!(", up to {floors:.1e} times rounding")).unwrap_or_default();
    let _ = writeln!(
        out,
        "  {}: {} in {} ({} trials{size})",
        defect.quantity,
        defect.fault.name(),
        dtypes.join(" "),
        defect.trials
    );
    let _ = writeln!(out, "    {}", defect.note);
    if let Some(known) = &defect.known {
        for line in wrap(&format!("known: {} ({})", known.reason, known.reference), width.saturating_sub(4)) {
            let _ = writeln!(out, "    {line}");
        }
    }
    let _ = writeln!(out, "    parity ops --target {} --case '{}'", survey.target, defect.smallest);
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        if let Some(line) = lines.last_mut()
            && (line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width)
        {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        lines.push(word.to_owned());
    }
    lines
}

/// Counts, never merged.
pub fn summary(survey: &Survey) -> String {
    let wrong = survey.wrong().count();
    let known = survey.wrong().filter(|row| row.defects.iter().all(|defect| defect.known.is_some())).count();
    let mut total = Tally::default();
    for cell in survey.operators.iter().flat_map(|row| row.cells.values()) {
        for tally in [cell.forward, cell.backward] {
            total.right += tally.right;
            total.close += tally.close;
            total.coarse += tally.coarse;
            total.wrong += tally.wrong;
            total.unsupported += tally.unsupported;
            total.untested += tally.untested;
        }
    }
    format!(
        "{} operators: {} right, {wrong} wrong ({known} of them known). Results and gradients: {} right, {} close, \
         {} coarse, {} wrong, {} unsupported, {} untested.",
        survey.operators.len(),
        survey.operators.len() - wrong,
        total.right,
        total.close,
        total.coarse,
        total.wrong,
        total.unsupported,
        total.untested
    )
}
