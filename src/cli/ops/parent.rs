//! Watches the process of a target, and starts another one where it died.

use std::io::{BufRead, BufReader, IsTerminal};
use std::process::{Command, Stdio};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::child::{Line, died};
use super::request::Request;
use crate::cli::failure::{Failure, request as failure};
use crate::conformance::{KnownDefects, Outcome, Survey};
use crate::engine::EngineInfo;

/// Processes that may die before the rest is given up.
const DEATHS: usize = 50;

/// Tries one target.
pub fn survey(request: &Request, known: &KnownDefects) -> Result<Survey, Failure> {
    let trials = request.trials();
    let bar = progress(trials.len(), &request.name);
    let mut watch = Watch { outcomes: Vec::new(), engine: None, absent: None, begun: None, ended: false };
    let mut request = request.clone();
    let mut deaths = 0;
    let mut notes = Vec::new();
    while !watch.ended && watch.absent.is_none() && watch.outcomes.len() < trials.len() {
        request.done = watch.outcomes.len();
        let how = watch.run(&request, &bar, &trials)?;
        if watch.ended || watch.absent.is_some() {
            break;
        }
        let Some(trial) = watch.begun.take().and_then(|at| trials.get(at)) else {
            notes.push(format!("its process ended before the first trial: {how}"));
            break;
        };
        deaths += 1;
        watch.outcomes.push(died(trial, &how));
        if deaths == DEATHS {
            let left = trials.len() - watch.outcomes.len();
            notes.push(format!("{deaths} trials ended the process; {left} were not tried"));
            break;
        }
    }
    bar.finish_and_clear();
    notes.extend(watch.absent.clone());
    let mut survey = Survey::of(&request.name, watch.engine, &watch.outcomes, known);
    survey.notes = notes;
    Ok(survey)
}

struct Watch {
    outcomes: Vec<Outcome>,
    engine: Option<EngineInfo>,
    absent: Option<String>,
    begun: Option<usize>,
    ended: bool,
}

impl Watch {
    /// One process, until it ends; how it did.
    fn run(
        &mut self,
        request: &Request,
        bar: &ProgressBar,
        trials: &[crate::conformance::Trial],
    ) -> Result<String, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::Request(format!("this program does not know its own path: {error}")))?;
        let text = serde_json::to_string(request).map_err(failure)?;
        let started = Command::new(program)
            .arg("__ops")
            .arg(text)
            .env("PYTORCH_ENABLE_MPS_FALLBACK", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.map_err(|error| {
            Failure::Request(format!("the process for {} did not start: {error}", request.name))
        })?;
        // Libraries write whatever they like to standard error: the last line is kept.
        let errors = child.stderr.take();
        let last = std::thread::spawn(move || {
            let lines =
                errors.into_iter().flat_map(|errors| BufReader::new(errors).lines().map_while(Result::ok));
            lines.filter(|line| !line.trim().is_empty()).last()
        });
        if let Some(out) = child.stdout.take() {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // What is no line of ours was printed by a library.
                if let Ok(line) = serde_json::from_str(&line) {
                    self.take(line, bar, trials);
                }
            }
        }
        let status = child.wait().map_err(|error| {
            Failure::Request(format!("the process for {} was lost: {error}", request.name))
        })?;
        let last = last.join().ok().flatten();
        Ok(match last {
            Some(last) => format!("{status}; last words: {}", last.trim()),
            None => status.to_string(),
        })
    }

    fn take(&mut self, line: Line, bar: &ProgressBar, trials: &[crate::conformance::Trial]) {
        match line {
            Line::Open { engine } => self.engine = Some(engine),
            Line::Absent { reason } => self.absent = Some(reason),
            Line::Begin { trial } => {
                self.begun = Some(trial);
                if let Some(trial) = trials.get(trial) {
                    bar.set_message(trial.case.op.name());
                }
            }
            Line::Done { outcome } => {
                self.begun = None;
                self.outcomes.push(outcome);
                bar.inc(1);
            }
            Line::End => self.ended = true,
        }
    }
}

/// One line on standard error; none where that is not a terminal.
fn progress(trials: usize, target: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(trials as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} [{bar:24}] {pos}/{len} {msg} {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_prefix(target.to_owned());
    bar
}
