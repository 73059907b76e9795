//! One quantity: from its deviation, its predicted noise and its band to a verdict.

use super::{AppliedBand, Cause, Verdict};
use crate::numerics::DType;

/// Deviation of a quantity from the reference, all norms Euclidean.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// ‖candidate − reference‖ over the elements that are finite on both sides.
    pub error_norm: f64,
    /// ‖reference‖ over the same elements.
    pub reference_norm: f64,
    /// Elements that are finite on one side only, or infinities of opposite sign, or NaN
    /// against a number.
    pub class_mismatches: u64,
    /// Largest distance in units in the last place.
    pub max_ulp: f64,
}

/// Deviation that rounding alone causes, predicted by replicas of the reference with noise.
#[derive(Clone, Copy, Debug)]
pub struct NoiseFloor {
    /// Root mean square over the replicas of ‖noisy − reference‖.
    pub norm: f64,
    /// Factor by which bands are widened for a quantity with few degrees of freedom, at
    /// least 1: a scalar loss scatters more around its predicted noise than a large tensor.
    pub widening: f64,
    /// Unit roundoff of the precision that the noise stands for.
    pub unit_roundoff: f64,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, unless within.
    pub cause: Option<Cause>,
    /// Deviation in the band's unit.
    pub deviation: Option<f64>,
    /// Band after widening.
    pub band: AppliedBand,
    /// ‖candidate − reference‖ / ‖reference‖.
    pub relative: Option<f64>,
    /// Relative deviation that would have failed.
    pub minimum_detectable: Option<f64>,
    /// Remarks for the row.
    pub notes: Vec<String>,
}

/// A quantity whose norm is below this many f64 noise floors is zero in exact arithmetic.
const STRUCTURAL_ZERO: f64 = 100.0;

/// Judges one quantity. `power_floor`: largest share of the signal that the floor may have.
#[must_use]
pub fn judge(
    deviation: &Deviation,
    floor: Option<&NoiseFloor>,
    band: &AppliedBand,
    power_floor: f64,
) -> Judgement {
    let relative = (deviation.reference_norm > 0.0).then(|| deviation.error_norm / deviation.reference_norm);
    let undecided = |verdict, cause, note: &str| Judgement {
        verdict,
        cause,
        deviation: None,
        band: band.clone(),
        relative,
        minimum_detectable: None,
        notes: vec![note.to_owned()],
    };
    if deviation.class_mismatches > 0 {
        let note = match deviation.class_mismatches {
            1 => "1 element is NaN or infinite on one side only, or infinite with opposite signs".to_owned(),
            n => {
                format!("{n} elements are NaN or infinite on one side only, or infinite with opposite signs")
            }
        };
        return undecided(Verdict::Outside, Some(Cause::NonFinite), &note);
    }
    if band.slack_ulp.is_some_and(|slack| deviation.max_ulp <= slack) {
        return within_slack(deviation, floor, band, power_floor, relative);
    }
    match band.unit.as_str() {
        "floor" => match floor {
            Some(floor) => by_floor(deviation, floor, band, power_floor, relative),
            None => undecided(Verdict::Unchecked, None, "the reference has no noise floor for this quantity"),
        },
        "ulp" => plain(deviation.max_ulp, None, band, relative),
        "relative" => {
            let value = relative.unwrap_or(if deviation.error_norm == 0.0 { 0.0 } else { f64::INFINITY });
            plain(value, Some(band.fail), band, relative)
        }
        other => undecided(Verdict::Unchecked, None, &format!("no rule for the unit `{other}` on a tensor")),
    }
}

/// No element deviates by more than the ULP that are always allowed. Inconclusive stays so.
fn within_slack(
    deviation: &Deviation,
    floor: Option<&NoiseFloor>,
    band: &AppliedBand,
    power_floor: f64,
    relative: Option<f64>,
) -> Judgement {
    let mut judgement = match floor.filter(|_| band.unit == "floor") {
        Some(floor) => by_floor(deviation, floor, band, power_floor, relative),
        None => plain(deviation.max_ulp, None, band, relative),
    };
    if matches!(judgement.verdict, Verdict::Marginal | Verdict::Outside) {
        judgement.verdict = Verdict::Within;
        judgement.cause = None;
        judgement.notes.push(format!("{} ulp: always allowed here", deviation.max_ulp));
    }
    judgement
}

fn by_floor(
    deviation: &Deviation,
    floor: &NoiseFloor,
    band: &AppliedBand,
    power_floor: f64,
    relative: Option<f64>,
) -> Judgement {
    let mut band = band.clone();
    band.pass *= floor.widening;
    band.fail *= floor.widening;
    if floor.norm == 0.0 {
        // Only exact operators lead here: any difference is one.
        let ratio = if deviation.error_norm == 0.0 { 0.0 } else { f64::INFINITY };
        return plain(ratio, None, &band, relative);
    }
    let signal = deviation.reference_norm;
    let structural_zero =
        signal <= STRUCTURAL_ZERO * floor.norm / floor.unit_roundoff * DType::F64.unit_roundoff();
    let detectable = (!structural_zero).then(|| band.fail * floor.norm / signal);
    let mut judgement = plain(deviation.error_norm / floor.norm, detectable, &band, relative);
    if structural_zero {
        judgement.relative = None;
        judgement.notes.push("zero in exact arithmetic: judged against the noise of its terms".to_owned());
    } else if judgement.verdict != Verdict::Outside && floor.norm / signal > power_floor {
        judgement.verdict = Verdict::Inconclusive;
        judgement.cause = None;
        judgement.notes.push(format!(
            "rounding alone may change this by {:.0} % of its size: too much to judge at this precision",
            100.0 * floor.norm / signal
        ));
    }
    judgement
}

fn plain(value: f64, detectable: Option<f64>, band: &AppliedBand, relative: Option<f64>) -> Judgement {
    // Written so that NaN is outside.
    let verdict = if value <= band.pass {
        Verdict::Within
    } else if value <= band.fail {
        Verdict::Marginal
    } else {
        Verdict::Outside
    };
    Judgement {
        verdict,
        cause: (verdict != Verdict::Within).then_some(Cause::Deviation),
        deviation: Some(value),
        band: band.clone(),
        relative,
        minimum_detectable: detectable,
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(unit: &str) -> AppliedBand {
        let text = String::new();
        AppliedBand {
            pass: 3.0,
            fail: 6.0,
            unit: unit.to_owned(),
            slack_ulp: None,
            rule: text.clone(),
            line: text.clone(),
            reason: text,
        }
    }

    fn off_by(error_norm: f64, reference_norm: f64) -> Deviation {
        Deviation { error_norm, reference_norm, class_mismatches: 0, max_ulp: 0.0 }
    }

    fn f32_floor(norm: f64) -> NoiseFloor {
        NoiseFloor { norm, widening: 1.0, unit_roundoff: DType::F32.unit_roundoff() }
    }

    #[test]
    fn the_deviation_is_counted_in_floors() {
        let floor = f32_floor(1e-6);
        for (error, verdict) in [(2e-6, Verdict::Within), (5e-6, Verdict::Marginal), (7e-6, Verdict::Outside)]
        {
            let j = judge(&off_by(error, 1.0), Some(&floor), &band("floor"), 0.1);
            assert_eq!(j.verdict, verdict);
            assert!((j.minimum_detectable.unwrap() - 6e-6).abs() < 1e-18);
        }
    }

    #[test]
    fn not_a_number_is_outside() {
        let floor = f32_floor(1e-6);
        assert_eq!(
            judge(&off_by(f64::NAN, 1.0), Some(&floor), &band("floor"), 0.1).verdict,
            Verdict::Outside
        );
        let mut deviation = off_by(0.0, 1.0);
        deviation.class_mismatches = 1;
        let j = judge(&deviation, Some(&floor), &band("floor"), 0.1);
        assert_eq!((j.verdict, j.cause), (Verdict::Outside, Some(Cause::NonFinite)));
    }

    #[test]
    fn a_floor_as_large_as_the_signal_is_inconclusive_not_within() {
        let j = judge(&off_by(0.0, 1.0), Some(&f32_floor(0.2)), &band("floor"), 0.1);
        assert_eq!(j.verdict, Verdict::Inconclusive);
    }

    #[test]
    fn a_structural_zero_is_judged_by_its_floor() {
        // ‖reference‖ is f64 noise of a cancelling sum whose f32 floor is 1e-8.
        let floor = f32_floor(1e-8);
        assert_eq!(judge(&off_by(1.5e-8, 3e-17), Some(&floor), &band("floor"), 0.1).verdict, Verdict::Within);
        assert_eq!(judge(&off_by(1e-3, 3e-17), Some(&floor), &band("floor"), 0.1).verdict, Verdict::Outside);
    }

    #[test]
    fn without_a_floor_nothing_passes() {
        assert_eq!(judge(&off_by(0.0, 1.0), None, &band("floor"), 0.1).verdict, Verdict::Unchecked);
    }

    #[test]
    fn what_is_exact_may_not_differ_at_all() {
        let floor = f32_floor(0.0);
        assert_eq!(judge(&off_by(0.0, 1.0), Some(&floor), &band("floor"), 0.1).verdict, Verdict::Within);
        assert_eq!(judge(&off_by(1e-30, 1.0), Some(&floor), &band("floor"), 0.1).verdict, Verdict::Outside);
    }

    #[test]
    fn slack_in_ulp_passes_what_the_floor_would_not() {
        let floor = f32_floor(1e-9);
        let mut deviation = off_by(1e-7, 1.0);
        deviation.max_ulp = 1.0;
        let with_slack = AppliedBand { slack_ulp: Some(2.0), ..band("floor") };
        assert_eq!(judge(&deviation, Some(&floor), &with_slack, 0.1).verdict, Verdict::Within);
        assert_eq!(judge(&deviation, Some(&floor), &band("floor"), 0.1).verdict, Verdict::Outside);
        deviation.max_ulp = 3.0;
        assert_eq!(judge(&deviation, Some(&floor), &with_slack, 0.1).verdict, Verdict::Outside);
    }

    #[test]
    fn few_degrees_of_freedom_widen_the_band() {
        let floor = NoiseFloor { widening: 5.2, ..f32_floor(1e-6) };
        let j = judge(&off_by(14e-6, 1.0), Some(&floor), &band("floor"), 0.1);
        assert_eq!(j.verdict, Verdict::Within);
    }
}
