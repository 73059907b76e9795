//! [`supervise`]: many plans, each in a process of its own.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::child::{self, ChildReport, ChildSpec};
use super::plan::{PlanFile, build_identity};
use super::process::{SignalGuard, limit_memory, signal_name};
use super::progress::{Message, Stage};
use super::{Cache, Ended, Plan, Prepared, RunError, Target, Usage, execute, own_peak_bytes};
use crate::recording::{self, Recording};

/// How plans are carried out.
#[derive(Clone, Debug)]
pub struct Supervision {
    /// The program to start for each target; it must call [`serve`] when its first argument
    /// is [`Supervision::SUBCOMMAND`].
    pub binary: PathBuf,
    /// Make every recording again.
    pub fresh: bool,
    /// Where recordings of the reference are kept.
    pub cache: Option<Cache>,
    /// Kill a target that says nothing for this long.
    pub silence: Option<Duration>,
}

impl Supervision {
    /// Hidden subcommand of the binary.
    pub const SUBCOMMAND: &'static str = "__target";

    /// This program, with the user's cache.
    ///
    /// # Errors
    /// If the system does not say where this program lies.
    pub fn by_this_program() -> Result<Self, RunError> {
        let binary = std::env::current_exe()
            .map_err(|source| RunError::Spawn { binary: "the running program".into(), source })?;
        Ok(Self { binary, fresh: false, cache: Cache::of_user(), silence: Some(Duration::from_mins(10)) })
    }
}

/// What became of one plan.
#[derive(Debug)]
pub enum Outcome {
    /// Its recording is complete.
    Recorded {
        /// The target.
        target: Target,
        /// The recording.
        recording: Box<Recording>,
        /// What its process used; `None` if the recording was there already.
        usage: Option<Usage>,
    },
    /// Its device does not exist here.
    Absent {
        /// The target.
        target: Target,
        /// Whether the engine has code for it at all.
        built: bool,
        /// What was seen.
        reason: String,
    },
    /// It could not finish and said why.
    Failed {
        /// The target.
        target: Target,
        /// Where it was.
        stage: Stage,
        /// Why.
        reason: String,
        /// What its process used.
        usage: Usage,
    },
    /// Its process ended without a word.
    Died {
        /// The target.
        target: Target,
        /// How.
        ended: Ended,
        /// The stage that it named last.
        stage: Stage,
        /// The end of what it printed.
        tail: Vec<String>,
        /// What it used.
        usage: Usage,
    },
}

impl Outcome {
    /// The target it is about.
    #[must_use]
    pub const fn target(&self) -> &Target {
        match self {
            Self::Recorded { target, .. }
            | Self::Absent { target, .. }
            | Self::Failed { target, .. }
            | Self::Died { target, .. } => target,
        }
    }

    /// Why there is no recording, in words; `None` if there is one.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        Some(match self {
            Self::Recorded { .. } => return None,
            Self::Absent { reason, .. } => reason.clone(),
            Self::Failed { stage, reason, .. } => format!("failed in stage `{}`: {reason}", stage.name()),
            Self::Died { ended, stage, tail, .. } => {
                let last = tail.last().map(|line| format!("; last words: {line}")).unwrap_or_default();
                format!("its process {ended} in stage `{}`{last}", stage.name())
            }
        })
    }

    /// The recording, if there is one.
    #[must_use]
    pub fn recording(&self) -> Option<&Recording> {
        match self {
            Self::Recorded { recording, .. } => Some(recording),
            _ => None,
        }
    }
}

/// What happens while plans are carried out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A target's process was started.
    Started,
    /// A finished recording is used again.
    Reused,
    /// A target is at this share of this stage.
    Progress {
        /// Part of its life.
        stage: Stage,
        /// Share of it that is done.
        fraction: f64,
    },
    /// A target is done, in whatever way.
    Ended,
}

/// Carries out `plans` of one subject, the reference's first, else in the given order; the
/// outcomes stand in the order of `plans`. `prepared` is their subject.
///
/// # Errors
/// If a process cannot be started, a recording that was there cannot be put in place, or a
/// signal came. What a target does, dying included, is an outcome.
pub fn supervise(
    plans: &[Plan],
    prepared: &Prepared,
    how: &Supervision,
    events: &mut dyn FnMut(&Target, Event),
) -> Result<Vec<Outcome>, RunError> {
    let _signals = SignalGuard::install();
    let build = build_identity(&how.binary);
    let mut order: Vec<usize> = (0..plans.len()).collect();
    order.sort_by_key(|index| plans.get(*index).is_none_or(|plan| !plan.target.is_reference()));
    let mut outcomes: Vec<(usize, Outcome)> = Vec::new();
    for index in order {
        let Some(plan) = plans.get(index) else { continue };
        let key = plan.key(&prepared.subject, &build);
        let outcome = if let Some(recording) = reuse(plan, &key, how)? {
            events(&plan.target, Event::Reused);
            Outcome::Recorded { target: plan.target, recording: Box::new(recording), usage: None }
        } else {
            // One of another plan must not be taken for what this run left, should the
            // target die.
            recording::discard(&plan.destination)?;
            make(plan, &key, how, events)?
        };
        events(&plan.target, Event::Ended);
        outcomes.push((index, outcome));
    }
    outcomes.sort_by_key(|(index, _)| *index);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// A finished recording of the same plan, from its destination or the cache.
fn reuse(plan: &Plan, key: &str, how: &Supervision) -> Result<Option<Recording>, RunError> {
    if how.fresh {
        return Ok(None);
    }
    if let Ok(there) = Recording::open(&plan.destination)
        && there.manifest().plan == key
        && there.verify().is_ok()
    {
        return Ok(Some(there));
    }
    match &how.cache {
        Some(cache) if plan.target.is_reference() => Ok(cache.fetch(key, &plan.destination)?),
        _ => Ok(None),
    }
}

/// Makes the recording in a process of its own.
fn make(
    plan: &Plan,
    key: &str,
    how: &Supervision,
    events: &mut dyn FnMut(&Target, Event),
) -> Result<Outcome, RunError> {
    let target = plan.target;
    let handover = |source| RunError::PlanFile { path: std::env::temp_dir(), source };
    let directory = tempfile::Builder::new().prefix("parity-").tempdir().map_err(handover)?;
    let path = directory.path().join("plan.json");
    PlanFile { key: key.to_owned(), plan: absolute(plan).map_err(handover)? }.write(&path)?;
    let spec = ChildSpec {
        binary: how.binary.clone(),
        arguments: vec![OsString::from(Supervision::SUBCOMMAND), path.into()],
        environment: plan.environment.clone(),
        silence: how.silence,
    };
    events(&target, Event::Started);
    let report =
        child::run(&spec, &mut |stage, fraction| events(&target, Event::Progress { stage, fraction }))
            .map_err(|source| RunError::Spawn { binary: how.binary.clone(), source })?;
    // A child that was killed cannot clean up behind itself.
    let _ = recording::sweep(&plan.destination);
    if let Some(number) = report.interrupted.or_else(SignalGuard::caught) {
        return Err(RunError::Interrupted { signal: signal_name(number).unwrap_or("a signal") });
    }
    let outcome = outcome(plan, key, report);
    if let (Outcome::Recorded { recording, .. }, Some(cache)) = (&outcome, &how.cache)
        && target.is_reference()
    {
        // A cache that cannot be written costs time, not the result.
        let _ = cache.keep(recording.path(), key);
    }
    Ok(outcome)
}

/// What a child's report means. Its word counts only with a recording to show.
fn outcome(plan: &Plan, key: &str, report: ChildReport) -> Outcome {
    let ChildReport { ended, stage, last, tail, usage, .. } = report;
    let target = plan.target;
    match last {
        Some(Message::Done { .. }) => match Recording::open(&plan.destination) {
            Ok(recording) if recording.manifest().plan == key => {
                Outcome::Recorded { target, recording: Box::new(recording), usage: Some(usage) }
            }
            Ok(_) => {
                let reason = "it left the recording of another plan".to_owned();
                Outcome::Failed { target, stage, reason, usage }
            }
            Err(error) => Outcome::Failed { target, stage, reason: error.to_string(), usage },
        },
        Some(Message::Absent { built, reason }) => Outcome::Absent { target, built, reason },
        Some(Message::Failed { stage, reason }) => Outcome::Failed { target, stage, reason, usage },
        _ => Outcome::Died { target, ended, stage, tail, usage },
    }
}

/// The same plan with paths that do not depend on the working directory.
fn absolute(plan: &Plan) -> std::io::Result<Plan> {
    let mut plan = plan.clone();
    plan.destination = std::path::absolute(&plan.destination)?;
    plan.subject.model = std::path::absolute(&plan.subject.model)?;
    if let super::Data::File(path) = &mut plan.subject.data {
        *path = std::path::absolute(&*path)?;
    }
    Ok(plan)
}

/// What the process of a target does: carries out the plan in the file `plan` and reports to
/// `out`, its standard output. Returns its exit code.
pub fn serve(plan: &Path, out: &mut (dyn Write + Send)) -> u8 {
    let state = Mutex::new((Stage::Start, out));
    // The state is whole after a panic in between.
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let send = |message: &Message| {
        // Nobody listens any more: whoever asked for the recording is gone.
        if message.send(&mut *lock().1).is_err() {
            std::process::exit(2);
        }
    };
    let progress = |stage: Stage, fraction: f64| {
        lock().0 = stage;
        send(&Message::Progress { stage, fraction });
    };
    let carry_out = |file: PlanFile| {
        if let Some(bytes) = file.plan.memory_limit {
            limit_memory(bytes).map_err(|source| RunError::MemoryLimit { bytes, source })?;
        }
        execute(&file.plan, &file.key, &progress)
    };
    match PlanFile::read(plan).and_then(carry_out) {
        Ok(_) => {
            send(&Message::Done { peak_bytes: own_peak_bytes() });
            0
        }
        Err(RunError::Absent { built, reason, .. }) => {
            send(&Message::Absent { built, reason });
            4
        }
        Err(error) => {
            let stage = lock().0;
            send(&Message::Failed { stage, reason: error.to_string() });
            2
        }
    }
}
