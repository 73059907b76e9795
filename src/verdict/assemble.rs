//! One target's recording against the reference's: a row for every quantity that either
//! has, and rows about the target as a whole.

use super::about::about_target;
use super::judge::{Deviation, NoiseFloor, judge};
use super::metrics::judge_counts;
use super::placement;
use super::{AppliedBand, Cause, Finding, Verdict, WorstElement};
use crate::compare::alignment::{
    AlignmentError, Difference, Fate, Lists, Presence, QuantityEntry, Row, Side, align,
};
use crate::compare::metrics::MetricError;
use crate::compare::statistics::Statistics;
use crate::compare::{Comparison, GradientDifference, GradientState, Pair, TensorView};
use crate::numerics::{DType, max_nan, ulp_distance};
use crate::recording::{Floor, Quantity, QuantityKind, Recording, RecordingError, State};
use crate::tensor::HostTensor;
use crate::tolerance;

/// Who is compared with whom.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// What is judged.
    pub candidate: &'a Recording,
    /// What it is judged against.
    pub reference: &'a Recording,
}

/// What the policy says, asked quantity by quantity.
pub trait Rules {
    /// Band of a quantity in the candidate's precision.
    fn band(&self, quantity: &Quantity) -> AppliedBand;
    /// Factor, at least 1, by which bands widen for a quantity of few degrees of freedom.
    fn widening(&self, floor: &Floor) -> f64;
    /// Largest share of the signal that the floor may have for a verdict to be possible.
    fn power_floor(&self) -> f64;
    /// Multiple of the floor of a logit that a legal deviation may reach: what explains a
    /// flipped prediction.
    fn flip_multiple(&self) -> f64;
    /// What is held against a target whose work left its device.
    fn placement(&self) -> &tolerance::Placement;
    /// Unit roundoff that the noise floors stand for.
    fn unit_roundoff(&self) -> f64;
}

/// All rows of one target.
///
/// # Errors
/// If a tensor of either recording is damaged, or a recording lists a quantity twice.
pub fn assemble(sides: Sides<'_>, rules: &dyn Rules) -> Result<Vec<Finding>, AssembleError> {
    let target = &sides.candidate.manifest().target.name;
    let manifest = sides.candidate.manifest();
    let mut findings = about_target(manifest);
    findings.extend(placement::rows(manifest, rules.placement()));
    let expected: Vec<String> = sides.reference.quantities().iter().map(|q| q.name.clone()).collect();
    let candidate = entries(sides.candidate);
    let reference = entries(sides.reference);
    let alignment = align(&Lists { expected: &expected, candidate: &candidate, reference: &reference })?;
    for row in &alignment.rows {
        findings.push(finding(sides, target, row, rules)?);
    }
    let compared = |f: &Finding| {
        matches!(f.verdict, Verdict::Within | Verdict::Marginal | Verdict::Outside | Verdict::Inconclusive)
    };
    if !findings.iter().any(compared) {
        let note = "the target recorded nothing that could be compared".to_owned();
        findings.push(Finding::about(target, "target", Verdict::Missing, Some(Cause::NothingRecorded), note));
    }
    Ok(findings)
}

/// No verdict is possible.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// A recording is damaged.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A recording lists a quantity twice.
    #[error("the recordings cannot be aligned: {0}; make them again")]
    Alignment(#[from] AlignmentError),
    /// Logits and labels of the evaluation do not fit.
    #[error("the evaluations cannot be compared: {0}; make the recordings again")]
    Metric(#[from] MetricError),
}

/// What a recording has, as the alignment sees it. What is missing is left out.
fn entries(recording: &Recording) -> Vec<QuantityEntry> {
    let presence = |quantity: &Quantity| match &quantity.state {
        State::Value => {
            let record = recording.manifest().tensors.get(&quantity.name)?;
            Some(Presence::Tensor { dtype: record.dtype, shape: record.shape.clone(), gradient: None })
        }
        State::None => Some(Presence::NoGradient),
        State::Skipped { reason } => Some(Presence::Skipped { reason: reason.clone() }),
        State::Missing { .. } => None,
    };
    let entry = |q: &Quantity| Some(QuantityEntry { name: q.name.clone(), presence: presence(q)? });
    recording.quantities().iter().filter_map(entry).collect()
}

fn finding(sides: Sides<'_>, target: &str, row: &Row, rules: &dyn Rules) -> Result<Finding, AssembleError> {
    let found = sides.candidate.quantity(&row.name);
    let expected = sides.reference.quantity(&row.name);
    let about = |verdict, cause, note: &str| {
        let mut finding = Finding::about(target, &row.name, verdict, cause, note.to_owned());
        if let Some(quantity) = found.or(expected) {
            finding.shape.clone_from(&quantity.shape);
            quantity.role.name().clone_into(&mut finding.role);
            if let Some(name) = &quantity.decomposed {
                finding.notes.push(format!("computed by a decomposition: {name}"));
            }
        }
        finding
    };
    let reason = |quantity: Option<&Quantity>| match quantity.map(|q| &q.state) {
        Some(State::Missing { reason }) => reason.clone(),
        _ => "the target recorded no such quantity".to_owned(),
    };
    Ok(match &row.fate {
        Fate::Compare => match (found, expected) {
            (Some(found), Some(_)) if rules.band(found).unit == "samples" => {
                let finding = about(Verdict::Unchecked, None, "");
                judge_counts(finding, sides, rules.band(found), rules.flip_multiple())?
            }
            (Some(found), Some(expected)) => {
                let candidate = sides.candidate.tensor(&row.name)?;
                let reference = sides.reference.tensor(&row.name)?;
                values(about(Verdict::Unchecked, None, ""), &candidate, &reference, found, expected, rules)
            }
            _ => about(Verdict::Missing, None, &reason(found)),
        },
        Fate::Differs { difference: Difference::Gradient { candidate: GradientState::None, .. } } => about(
            Verdict::Outside,
            Some(Cause::GradientSevered),
            "the engine has no gradient where there is one",
        ),
        Fate::Differs { difference: Difference::Gradient { .. } } => about(
            Verdict::Outside,
            Some(Cause::GradientUnexpected),
            "the engine has a gradient where there is none",
        ),
        Fate::Differs { difference: Difference::Shape { candidate, reference } } => {
            let note = format!("shape {candidate:?}, the reference has {reference:?}");
            about(Verdict::Outside, Some(Cause::Shape), &note)
        }
        Fate::Differs { difference: Difference::DTypeClass { candidate, reference } } => about(
            Verdict::Outside,
            Some(Cause::Dtype),
            &format!("{candidate}, the reference has {reference}"),
        ),
        Fate::NeitherHasGradient => about(Verdict::Skipped, None, "no gradient on either side"),
        Fate::Skipped { side: Side::Candidate, reason } => about(Verdict::Skipped, None, reason),
        Fate::Skipped { side: Side::Reference, reason } => {
            about(Verdict::Unchecked, None, &format!("the reference has none: {reason}"))
        }
        Fate::Missing { sides } if sides.contains(&Side::Candidate) => {
            about(Verdict::Missing, None, &reason(found))
        }
        Fate::Missing { .. } | Fate::Unchecked { .. } => {
            about(Verdict::Unchecked, None, "there is nothing in the reference to compare it with")
        }
    })
}

fn values(
    mut finding: Finding,
    candidate: &HostTensor,
    reference: &HostTensor,
    found: &Quantity,
    expected: &Quantity,
    rules: &dyn Rules,
) -> Finding {
    candidate.shape().clone_into(&mut finding.shape);
    let pair = Pair { candidate: TensorView::from(candidate), reference: TensorView::from(reference) };
    let statistics = match pair.compare_as(found.dtype) {
        Comparison::Structural(difference) => {
            finding.verdict = Verdict::Outside;
            finding.cause =
                Some(if candidate.shape() == reference.shape() { Cause::Dtype } else { Cause::Shape });
            finding.notes.push(difference.to_string());
            return finding;
        }
        Comparison::Empty => {
            finding.verdict = Verdict::Skipped;
            finding.notes.push("no elements on either side".to_owned());
            return finding;
        }
        Comparison::Statistics(statistics) => statistics,
    };
    let deviation = Deviation {
        error_norm: statistics.sums.error.root(),
        reference_norm: statistics.sums.reference.root(),
        class_mismatches: statistics.mismatches(),
        max_ulp: statistics.max_ulp.map_or(0.0, |m| m.value),
    };
    let floor = expected.floor.as_ref().map(|floor| NoiseFloor {
        norm: floor.norm,
        widening: max_nan(rules.widening(floor), 1.0),
        unit_roundoff: rules.unit_roundoff(),
    });
    let judgement = judge(&deviation, floor.as_ref(), &rules.band(found), rules.power_floor());
    finding.verdict = judgement.verdict;
    finding.cause = judgement.cause;
    finding.deviation = judgement.deviation;
    finding.relative = judgement.relative;
    finding.minimum_detectable = judgement.minimum_detectable;
    finding.floor = floor.map(|f| f.norm);
    finding.band = Some(judgement.band);
    finding.notes.extend(judgement.notes);
    finding.worst = worst(&statistics, candidate.dtype());
    if found.kind == QuantityKind::Gradient || found.kind == QuantityKind::InputGradient {
        let states = GradientDifference::between(
            GradientState::of(Some(pair.candidate)),
            GradientState::of(Some(pair.reference)),
        );
        if finding.verdict == Verdict::Outside && states == GradientDifference::ZeroForValue {
            finding.cause = Some(Cause::GradientZero);
            finding.notes.push("the gradient is zero everywhere".to_owned());
        }
    }
    finding
}

fn worst(statistics: &Statistics, dtype: DType) -> Option<WorstElement> {
    statistics.worst.first().map(|w| WorstElement {
        index: w.position.iter().map(|i| usize::try_from(*i).unwrap_or(usize::MAX)).collect(),
        candidate: w.candidate,
        reference: w.reference,
        ulp: ulp_distance(w.candidate, w.reference, dtype),
    })
}
