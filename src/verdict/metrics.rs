//! Validation metrics: not how far a count moved, but which predictions flipped and whether
//! rounding explains it.

use super::assemble::{AssembleError, Sides};
use super::{AppliedBand, Cause, Finding, Verdict};
use crate::compare::metrics::{FlipQuestion, Flips, Scores};
use crate::recording::{Evaluation, Recording};

/// Judges a counted metric (top-1, top-5) by the flips of single samples.
///
/// # Errors
/// If a recording is damaged, or logits and floors do not belong together.
pub(super) fn judge_counts(
    mut finding: Finding,
    sides: Sides<'_>,
    band: AppliedBand,
    multiple: f64,
) -> Result<Finding, AssembleError> {
    let name = finding.quantity.clone();
    let value = |recording: &Recording| -> Result<f64, AssembleError> {
        Ok(recording.tensor(&name)?.to_f64().first().copied().unwrap_or(f64::NAN))
    };
    let (candidate, reference) = (value(sides.candidate)?, value(sides.reference)?);
    finding.notes.push(format!("{:.2} % against {:.2} %", 100.0 * candidate, 100.0 * reference));
    if !sides.reference.has_tensor(Evaluation::LOGIT_FLOOR) {
        finding.verdict = Verdict::Unchecked;
        finding.notes.push("the reference has no noise floor of its logits".to_owned());
        return Ok(finding);
    }
    let flips = flips(sides, multiple)?;
    let unexplained = flips.unexplained as f64;
    finding.verdict = if unexplained <= band.pass {
        Verdict::Within
    } else if unexplained <= band.fail {
        Verdict::Marginal
    } else {
        Verdict::Outside
    };
    finding.cause = (finding.verdict != Verdict::Within).then_some(Cause::Metric);
    finding.deviation = Some(unexplained);
    finding.band = Some(band);
    if flips.total() > 0 {
        finding.notes.push(format!(
            "{} of {} predictions flipped: {} explained by the margin of the reference, {} not",
            flips.total(),
            flips.samples,
            flips.explained,
            flips.unexplained
        ));
    }
    if let Some(flip) = flips.flips.first() {
        let class = |c: Option<u64>| c.map_or("NaN".to_owned(), |c| c.to_string());
        finding.notes.push(format!(
            "sample {}: class {} became {}, margin {:.3e}, rounding explains up to {:.3e}",
            flip.sample,
            class(flip.reference),
            class(flip.candidate),
            flip.margin,
            flip.explained_up_to
        ));
    }
    Ok(finding)
}

fn flips(sides: Sides<'_>, multiple: f64) -> Result<Flips, AssembleError> {
    let candidate = sides.candidate.tensor(Evaluation::LOGITS)?;
    let reference = sides.reference.tensor(Evaluation::LOGITS)?;
    let floor = sides.reference.tensor(Evaluation::LOGIT_FLOOR)?.to_f64();
    let classes = |shape: &[usize]| shape.last().copied().unwrap_or(0);
    let (values, classes_found) = (candidate.to_f64(), classes(candidate.shape()));
    let (expected, classes_expected) = (reference.to_f64(), classes(reference.shape()));
    Ok(Flips::find(&FlipQuestion {
        candidate: Scores::new(&values, classes_found)?,
        reference: Scores::new(&expected, classes_expected)?,
        floor: &floor,
        k: multiple,
    })?)
}
