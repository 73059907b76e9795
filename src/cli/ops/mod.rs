//! `parity ops`: what is wrong with this backend?
//!
//! Each target is tried in a process of its own, which writes a line when it begins a trial
//! and one when it ends. A driver that aborts takes that trial with it and nothing else: it
//! becomes a finding, and a new process goes on behind it. The losing option, this process,
//! would lose everything found so far, and could not switch a library's global modes for one
//! target without changing the next.

mod bands;
mod child;
mod markdown;
mod parent;
mod request;
mod terminal;

use std::fs;

use super::args::{Format, OpsArgs};
use super::failure::{Failure, request as failure};
use super::{check, output};
use crate::conformance::{KnownDefects, Survey};
use crate::verdict::exit;

pub use child::serve;

/// Tries the operators of every target; the exit code says what came of it.
pub fn run(args: &OpsArgs) -> Result<u8, Failure> {
    check::policy(args.policy.as_deref())?; // a mistake in it is found before anything runs
    let known = KnownDefects::builtin().map_err(failure)?;
    let requests = request::resolve(args)?;
    let mut surveys = Vec::new();
    for request in &requests {
        surveys.push(parent::survey(request, &known)?);
    }
    if let Some(path) = &args.document {
        let text = markdown::document(&surveys);
        fs::write(path, text).map_err(|source| Failure::Write { path: path.clone(), source })?;
    } else {
        print(args, &surveys);
    }
    Ok(exit_code(args, &surveys))
}

fn exit_code(args: &OpsArgs, surveys: &[Survey]) -> u8 {
    let absent = surveys.iter().any(|survey| survey.engine.is_none());
    if surveys.iter().any(|survey| survey.wrong().next().is_some()) {
        exit::DEVIATION
    } else if surveys.iter().all(|survey| survey.judged() == 0)
        || absent && !args.targets.is_empty() && !args.if_available
    {
        exit::INCOMPLETE
    } else {
        exit::PARITY
    }
}

#[expect(clippy::print_stdout, reason = "the output of the subcommand")]
fn print(args: &OpsArgs, surveys: &[Survey]) {
    let format = match (args.json, args.markdown) {
        (true, _) => Format::Json,
        (_, true) => Format::Markdown,
        _ => args.format,
    };
    match format {
        Format::Json => println!("{}", json(surveys)),
        Format::Markdown => print!("{}", markdown::surveys(surveys)),
        Format::Terminal => {
            let options = output::terminal_options(args.colour, false);
            print!("{}", terminal::surveys(surveys, options.width, options.colour));
        }
    }
}

fn json(surveys: &[Survey]) -> String {
    let document = serde_json::json!({
        "schema_version": 1,
        "tool": format!("parity {}", env!("CARGO_PKG_VERSION")),
        "targets": surveys,
    });
    serde_json::to_string_pretty(&document).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
}
