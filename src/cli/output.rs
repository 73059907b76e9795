//! Output directory, files of a table, and the command that makes it again.

use std::fs;
use std::io::{IsTerminal, Write as _};
use std::path::Path;

use super::args::{CheckArgs, Colour, Mode};
use super::check::recordings;
use super::failure::Failure;
use crate::report::{self, TerminalOptions};
use crate::run::Target;
use crate::verdict::DifferenceTable;

/// Makes the output directory and shows that it can be written, before anything runs.
pub fn prepare(out: &Path) -> Result<(), Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::Write { path, source }
    };
    let directory = recordings(out);
    fs::create_dir_all(&directory).map_err(failed(&directory))?;
    tempfile::Builder::new().prefix(".writable-").tempfile_in(out).map_err(failed(out))?;
    Ok(())
}

/// Writes `table.json`, `table.md` and `table.txt`, each whole or not at all.
pub fn write(out: &Path, table: &DifferenceTable) -> Result<(), Failure> {
    let plain = TerminalOptions { all_rows: true, ..TerminalOptions::default() };
    let files = [
        ("table.json", report::json(table)),
        ("table.md", report::markdown(table)),
        ("table.txt", report::terminal(table, &plain)),
    ];
    for (name, text) in files {
        let path = out.join(name);
        let failed = |source: std::io::Error| Failure::Write { path: path.clone(), source };
        let mut file = tempfile::NamedTempFile::new_in(out).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.persist(&path).map_err(|e| failed(e.error))?;
    }
    Ok(())
}

/// Columns and colour of this terminal.
pub fn terminal_options(colour: Colour, all_rows: bool) -> TerminalOptions {
    let terminal = std::io::stdout().is_terminal();
    let width = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let width = width.or_else(|| terminal.then(columns).flatten()).unwrap_or(80);
    let colour = match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => terminal,
    };
    TerminalOptions { width: width.clamp(60, 160), colour, all_rows }
}

/// Columns of the terminal on standard output.
fn columns() -> Option<usize> {
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// The command that makes this table again: every choice spelled out, no paths of this
/// machine beyond the last component of the model's.
pub fn command_line(args: &CheckArgs, targets: &[Target]) -> String {
    let name = |path: &Path| path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut words = vec!["parity check".to_owned(), name(&args.model.model)];
    words.push(format!("--batch {} --seed {}", args.model.batch, args.seed));
    if args.model.mode == Mode::Train {
        words.push("--mode train".to_owned());
    }
    if let Some(sequence) = args.model.sequence {
        words.push(format!("--sequence {sequence}"));
    }
    if let Some(data) = &args.data {
        words.push(format!("--data {}", name(data)));
    }
    if args.synthetic_data {
        words.push("--synthetic-data".to_owned());
    }
    if let Some(policy) = &args.policy {
        words.push(format!("--policy {}", name(policy)));
    }
    words.extend(targets.iter().map(|target| format!("--target {target}")));
    words.join(" ")
}
