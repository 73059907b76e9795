//! From the outcomes of all targets to the table.

use super::args::CheckArgs;
use super::failure::{Failure, request};
use super::summarise;
use crate::engine::DeviceKind;
use crate::recording::Recording;
use crate::run::{Outcome, Prepared, Target};
use crate::tolerance::Policy;
use crate::verdict::{
    Cause, Counts, Demands, DeviceSummary, DifferenceTable, Finding, PolicyRules, PolicySummary, Sides,
    SubjectSummary, TABLE_SCHEMA_VERSION, TargetStatus, TargetSummary, Verdict, assemble, attribute,
    conclude,
};

/// What a table is made from, beside the outcomes.
#[derive(Debug)]
pub struct Context<'a> {
    pub prepared: &'a Prepared,
    pub policy: &'a Policy,
    pub args: &'a CheckArgs,
    pub command: String,
}

/// The difference table of all outcomes.
pub fn table(context: &Context<'_>, outcomes: &[Outcome]) -> Result<DifferenceTable, Failure> {
    let mut findings = Vec::new();
    let mut summaries = Vec::new();
    let mut reference = None;
    for outcome in outcomes {
        let rows = rows(context, outcome, outcomes)?;
        let summary = summary(outcome, &rows);
        if outcome.target().is_reference() {
            reference.get_or_insert(summary);
        } else {
            summaries.push(summary);
        }
        findings.extend(rows);
    }
    let candidates: Vec<_> =
        outcomes.iter().map(Outcome::target).filter(|t| !t.is_reference()).map(Target::id).collect();
    attribute(&mut findings, &candidates);
    let mut table = DifferenceTable {
        schema_version: TABLE_SCHEMA_VERSION,
        tool: format!("parity {}", env!("CARGO_PKG_VERSION")),
        command: context.command.clone(),
        subject: subject(context),
        policy: PolicySummary {
            name: context.policy.name.clone(),
            hash: summarise::short(&context.policy.hash()),
        },
        reference,
        targets: summaries,
        counts: Counts::of(&findings),
        conclusion: conclude(
            &findings,
            Demands {
                absences_allowed: context.args.if_available,
                inconclusive_gradients: context.policy.run.inconclusive_gradients,
            },
        ),
        warnings: context.prepared.warnings.iter().map(ToString::to_string).collect(),
        findings,
    };
    table.sort();
    Ok(table)
}

fn rows(context: &Context<'_>, outcome: &Outcome, outcomes: &[Outcome]) -> Result<Vec<Finding>, Failure> {
    let target = outcome.target();
    let name = target.to_string();
    let about =
        |verdict, cause, note: String| vec![Finding::about(&name, "target", verdict, Some(cause), note)];
    Ok(match outcome {
        Outcome::Recorded { .. } if target.is_reference() => Vec::new(),
        Outcome::Recorded { recording, .. } => match reference_of(outcome, outcomes) {
            Some(reference) => compared(context, recording, reference)?,
            None => about(
                Verdict::Unchecked,
                Cause::NothingRecorded,
                format!("{} did not finish, so there is nothing to compare with", target.reference()),
            ),
        },
        Outcome::Absent { .. } => {
            about(Verdict::Missing, Cause::Absent, outcome.complaint().unwrap_or_default())
        }
        Outcome::Failed { .. } | Outcome::Died { .. } => {
            about(Verdict::Outside, Cause::Died, outcome.complaint().unwrap_or_default())
        }
    })
}

fn reference_of<'a>(outcome: &Outcome, outcomes: &'a [Outcome]) -> Option<&'a Recording> {
    let reference = outcome.target().reference();
    outcomes.iter().find(|o| *o.target() == reference)?.recording()
}

fn compared(
    context: &Context<'_>,
    candidate: &Recording,
    reference: &Recording,
) -> Result<Vec<Finding>, Failure> {
    let differences = candidate.manifest().subject.differences(&reference.manifest().subject);
    if !differences.is_empty() {
        let parts: Vec<String> =
            differences.iter().map(|(part, a, b)| format!("{part}: {a} against {b}")).collect();
        return Err(Failure::NotComparable(format!(
            "{} and the reference are recordings of different subjects ({}); record both again",
            candidate.manifest().target.name,
            parts.join("; ")
        )));
    }
    let precision = candidate.manifest().target.precision.parse().map_err(request)?;
    let rules = PolicyRules { policy: context.policy, precision, quantities: reference.quantities().len() };
    assemble(Sides { candidate, reference }, &rules).map_err(request)
}

fn summary(outcome: &Outcome, findings: &[Finding]) -> TargetSummary {
    let target = outcome.target();
    let (name, precision) = (target.to_string(), target.precision.to_string());
    let absent = |status, reason: &str| summarise::did_not_run(&name, &precision, status, reason, findings);
    let device = |built: bool| {
        let accelerator = target.device.kind != DeviceKind::Cpu;
        accelerator.then_some(DeviceSummary { built, available: false, verified: None, kernels: None })
    };
    match outcome {
        Outcome::Recorded { recording, usage, .. } => {
            let status = if usage.is_some() { TargetStatus::Ran } else { TargetStatus::Reused };
            let wall = usage.as_ref().map(|usage| usage.wall_s);
            summarise::ran(recording.manifest(), status, wall, findings)
        }
        Outcome::Absent { built, reason, .. } => {
            TargetSummary { device: device(*built), ..absent(TargetStatus::Absent, reason) }
        }
        Outcome::Failed { reason, .. } => absent(TargetStatus::Died, reason),
        Outcome::Died { ended, .. } => absent(TargetStatus::Died, &format!("its process {ended}")),
    }
}

fn subject(context: &Context<'_>) -> SubjectSummary {
    let Prepared { spec, program, subject, samples, .. } = context.prepared;
    SubjectSummary {
        model: spec.model.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned()),
        family: program.name.clone(),
        fingerprint: summarise::short(&subject.fingerprint()),
        checkpoint: subject.checkpoint.clone(),
        program: subject.program.clone(),
        batch: subject.batch.clone(),
        seed: subject.seed,
        batch_size: spec.batch,
        evaluation_samples: samples.as_ref().map_or(0, |s| s.count),
        mode: subject.mode.clone(),
    }
}
