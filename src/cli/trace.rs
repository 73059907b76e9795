//! `parity trace`: where the operators of one target ran.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use super::args::{Format, TraceArgs};
use super::failure::{Failure, request};
use super::progress::Line;
use super::{check, output, targets};
use crate::recording::Recording;
use crate::report::{self, TraceReport};
use crate::run::{Captures, Outcome, Plan, Prepared, Supervision, supervise};
use crate::trace::{OperatorEvent, PassTrace, detect, summarise, write_chrome};
use crate::verdict::exit;

/// Runs one target, or reads a recording, and prints what its trace shows. Exit code 1 where
/// work left the device.
pub fn run(args: &TraceArgs) -> Result<u8, Failure> {
    if args.format == Format::Markdown {
        return Err(Failure::Request(
            "`trace` has no Markdown form; use --format terminal or --format json".to_owned(),
        ));
    }
    if args.model.model.join("recording.json").exists() {
        let recording = Recording::open(&args.model.model).map_err(request)?;
        return show(args, &recording);
    }
    let Some(name) = &args.target else {
        return Err(Failure::Request(format!(
            "`{}` is no recording, so name who is to run it: --target ENGINE[:DEVICE]@PRECISION, such as \
             --target torch:cpu@f32",
            args.model.model.display()
        )));
    };
    let target = targets::resolve(std::slice::from_ref(name))?.first().copied();
    let Some(target) = target else { return Err(Failure::Request("no target".to_owned())) };
    let spec = check::subject(&args.model, args.seed);
    let prepared = Prepared::load(&spec).map_err(request)?;
    let directory = tempfile::Builder::new()
        .prefix("parity-trace-")
        .tempdir()
        .map_err(|source| Failure::Write { path: std::env::temp_dir(), source })?;
    let mut plan = Plan::new(spec, target, directory.path());
    plan.captures = Captures { activations: false, gradients: true, activation_gradients: false };
    // A warm-up: the first pass of a process pays for what later ones do not.
    plan.bare_passes = 1;
    plan.evaluate = false;
    plan.trace = true;
    check::settle(&mut plan, &args.run)?;
    let how = Supervision { fresh: true, cache: None, ..Supervision::by_this_program().map_err(request)? };
    let mut line = Line::new(1);
    let outcomes = supervise(std::slice::from_ref(&plan), &prepared, &how, &mut |target, event| {
        line.event(target, event);
    });
    line.finish();
    let outcomes = outcomes.map_err(request)?;
    let outcome = outcomes.first().ok_or_else(|| Failure::Request("no target".to_owned()))?;
    match (outcome, outcome.complaint().unwrap_or_default()) {
        (Outcome::Recorded { recording, .. }, _) => show(args, recording),
        (Outcome::Absent { .. }, why) => Err(Failure::Incomplete(format!("{target} is absent: {why}"))),
        (_, why) => Err(Failure::Deviation(format!("{target}: {why}"))),
    }
}

fn show(args: &TraceArgs, recording: &Recording) -> Result<u8, Failure> {
    let manifest = recording.manifest();
    let events = recording.events().map_err(request)?;
    if events.is_empty() {
        return Err(Failure::Incomplete(format!(
            "the recording of {} has no operator events; record it with tracing on",
            manifest.target.name
        )));
    }
    if let Some(path) = &args.chrome {
        chrome(path, &manifest.target.name, &events)?;
    }
    let placement = manifest
        .placement
        .clone()
        .unwrap_or_else(|| detect(&manifest.engine.device, &[PassTrace { inputs: &[], events: &events }]));
    let left = !placement.fallbacks.is_empty();
    let report = TraceReport {
        target: manifest.target.name.clone(),
        engine: format!("{} {}", manifest.engine.engine, manifest.engine.version),
        device: manifest.engine.device.clone(),
        emulated: manifest.engine.emulated,
        modes: manifest.engine.modes.iter().cloned().collect(),
        summary: summarise(&events),
        placement,
        kernels: manifest.device.as_ref().and_then(|device| device.kernels.clone()),
    };
    let text = match args.format {
        Format::Json => report::trace_json(&report),
        _ => report::trace(&report, &output::terminal_options(args.colour, false), args.top as usize),
    };
    anstream::print!("{text}");
    if let Some(path) = &args.chrome
        && args.format == Format::Terminal
    {
        anstream::println!("\nevents for https://ui.perfetto.dev or chrome://tracing: {}", path.display());
    }
    Ok(if left { exit::DEVIATION } else { exit::PARITY })
}

/// The whole file or none of it.
fn chrome(path: &Path, title: &str, events: &[OperatorEvent]) -> Result<(), Failure> {
    let failed = |source: std::io::Error| Failure::Write { path: path.to_owned(), source };
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
    let mut out = BufWriter::new(file);
    write_chrome(&mut out, title, events).map_err(failed)?;
    out.flush().map_err(failed)?;
    let file: tempfile::NamedTempFile<File> = out.into_inner().map_err(|e| failed(e.into_error()))?;
    file.persist(path).map_err(|e| failed(e.error)).map(|_| ())
}
