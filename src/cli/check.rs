//! `parity check`: plan, run, compare, report.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::args::{CheckArgs, Colour, Format, Mode, ModelArgs, RunArgs, SelfCheck};
use super::failure::{Failure, request};
use super::outcome::{self, Context};
use super::progress::Line;
use super::{output, targets};
use crate::engine::DeviceKind;
use crate::engine::torch::{self, Emulation};
use crate::recording::Lock;
use crate::run::{
    Data, EngineKind, NoisePlan, Plan, Plant, Prepared, SubjectSpec, Supervision, Target, supervise,
};
use crate::tolerance::Policy;
use crate::verdict::DifferenceTable;

/// Subdirectory of the output directory for recordings.
const RECORDINGS: &str = "recordings";

/// Runs the check; the exit code says what came of it.
pub fn run(args: &CheckArgs) -> Result<u8, Failure> {
    let policy = policy(args.policy.as_deref())?;
    let targets = targets::resolve(&args.targets)?;
    let plants = plants(&args.plant, &targets)?;
    if !args.run.emulate.is_empty() && !targets.iter().any(|t| t.device.kind == DeviceKind::MpsEmulated) {
        return Err(Failure::Request(
            "--emulate is for the software device alone; add --target torch:mps-emulated@f32".to_owned(),
        ));
    }
    let spec = SubjectSpec {
        data: match &args.data {
            Some(path) => Data::File(path.clone()),
            None if args.synthetic_data => Data::Seed,
            None => Data::Auto,
        },
        ..subject(&args.model, args.seed)
    };
    output::prepare(&args.out)?;
    let _lock = Lock::acquire(&args.out.join("check")).map_err(request)?;
    let prepared = Prepared::load(&spec).map_err(request)?;
    let mut plans = plans(&spec, &targets, &plants, &policy, &args.out.join(RECORDINGS));
    for plan in &mut plans {
        settle(plan, &args.run)?;
    }
    if !self_check(args.self_check, &prepared) {
        for plan in &mut plans {
            plan.bare_passes = 0;
        }
    }
    let mut how = Supervision::by_this_program().map_err(request)?;
    how.fresh = args.fresh;
    if args.no_cache {
        how.cache = None;
    }
    if let Some(seconds) = args.silence {
        how.silence = Some(Duration::from_secs(seconds));
    }
    let mut line = Line::new(plans.len());
    let outcomes = supervise(&plans, &prepared, &how, &mut |target, event| line.event(target, event));
    line.finish();
    let outcomes = outcomes.map_err(request)?;
    let context =
        Context { prepared: &prepared, policy: &policy, args, command: output::command_line(args, &targets) };
    let table = outcome::table(&context, &outcomes)?;
    output::write(&args.out, &table)?;
    print(args, &table);
    Ok(table.conclusion.exit_code)
}

/// Weights times samples up to which a second pass is cheap: well below a second on one core.
const CHEAP: usize = 16 << 20;

/// Whether targets are run a second time, unobserved.
fn self_check(wanted: SelfCheck, prepared: &Prepared) -> bool {
    match wanted {
        SelfCheck::Always => true,
        SelfCheck::Never => false,
        SelfCheck::Auto => prepared.checkpoint.elements().saturating_mul(prepared.spec.batch) <= CHEAP,
    }
}

/// The built-in policy, or the user's.
pub fn policy(path: Option<&Path>) -> Result<Policy, Failure> {
    match path {
        Some(path) => Policy::load(path),
        None => Policy::builtin(),
    }
    .map_err(request)
}

/// What is computed, but for the data.
pub fn subject(model: &ModelArgs, seed: u64) -> SubjectSpec {
    SubjectSpec {
        batch: model.batch as usize,
        sequence: model.sequence.map(|n| n as usize),
        train: model.mode == Mode::Train,
        seed,
        ..SubjectSpec::new(&model.model)
    }
}

/// What the command line says about how a target is run.
pub fn settle(plan: &mut Plan, args: &RunArgs) -> Result<(), Failure> {
    let emulation: Vec<Emulation> =
        args.emulate.iter().map(|text| text.parse().map_err(request)).collect::<Result<_, Failure>>()?;
    for text in &args.memory_limit {
        let (mib, target) = text.split_once('@').map_or((text.as_str(), None), |(mib, t)| (mib, Some(t)));
        let mib: u32 = mib.parse().ok().filter(|mib| *mib > 0).ok_or_else(|| {
            Failure::Request(format!("--memory-limit {text}: write a number of MiB, or MIB@TARGET"))
        })?;
        let target: Option<Target> = target.map(|t| t.parse().map_err(request)).transpose()?;
        if target.is_none_or(|target| target == plan.target) {
            plan.memory_limit = Some(u64::from(mib) << 20);
        }
    }
    if plan.target.engine == EngineKind::Torch {
        // Part of the plan: a recording made under other switches is another one.
        for name in torch::ENVIRONMENT {
            plan.environment.insert(name.to_owned(), std::env::var(name).ok());
        }
    }
    if let (Some(steps), false) = (args.steps, plan.target.is_reference()) {
        plan.steps = steps;
    }
    if plan.target.device.kind == DeviceKind::MpsEmulated {
        plan.emulation = emulation;
    }
    Ok(())
}

/// Faults by target: `KIND[:PARAMETER][:PLACE]@TARGET`.
fn plants(texts: &[String], targets: &[Target]) -> Result<Vec<(Target, Plant)>, Failure> {
    texts
        .iter()
        .map(|text| {
            let wrong = |reason: String| Failure::Request(format!("--plant {text}: {reason}"));
            let (fault, target) = text
                .split_once('@')
                .ok_or_else(|| wrong("write KIND[:PARAMETER][:PLACE]@TARGET".to_owned()))?;
            let target: Target = target.parse().map_err(request)?;
            if !targets.contains(&target) {
                return Err(wrong(format!("{target} is not one of the targets; add --target {target}")));
            }
            Ok((target, fault.parse().map_err(request)?))
        })
        .collect()
}

/// One plan a target, and one for each precision's reference.
fn plans(
    spec: &SubjectSpec,
    targets: &[Target],
    plants: &[(Target, Plant)],
    policy: &Policy,
    out: &Path,
) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    for target in targets {
        let reference = target.reference();
        if !plans.iter().any(|plan| plan.target == reference) {
            let mut plan = Plan::new(spec.clone(), reference, out);
            let replicas = policy.run.mc_replicas;
            plan.noise = Some(NoisePlan { replicas, model: policy.model, ..NoisePlan::default() });
            plans.push(plan);
        }
        if !target.is_reference() {
            let mut plan = Plan::new(spec.clone(), *target, out);
            plan.plant = plants.iter().find(|(t, _)| t == target).map(|(_, plant)| plant.clone());
            plans.push(plan);
        }
    }
    plans
}

#[expect(clippy::print_stdout, reason = "the output of the subcommand")]
fn print(args: &CheckArgs, table: &DifferenceTable) {
    let text = match args.format {
        Format::Terminal => {
            crate::report::terminal(table, &output::terminal_options(args.colour, args.all_rows))
        }
        Format::Json => crate::report::json(table),
        Format::Markdown => crate::report::markdown(table),
    };
    if args.colour == Colour::Auto {
        anstream::print!("{text}"); // decides by itself what the stream can show
    } else {
        print!("{text}");
    }
}

/// Where the recordings of a check lie.
pub fn recordings(out: &Path) -> PathBuf {
    out.join(RECORDINGS)
}
