//! Work that left the device, judged by the placement part of the policy.

use std::collections::BTreeMap;

use super::about::is_elsewhere;
use super::{AppliedBand, Cause, Finding, Verdict};
use crate::recording::Manifest;
use crate::tolerance::{Placement as Policy, PlacementMode};
use crate::trace::{Fallback, FallbackKind, Placement, is_host};

/// What the names of these rows begin with.
pub(super) const PREFIX: &str = "placement/";

/// One row for each place where work left the device. Values are not looked at: a fallback
/// turns a check red although every number agrees.
pub(super) fn rows(manifest: &Manifest, policy: &Policy) -> Vec<Finding> {
    let target = &manifest.target.name;
    let Some(placement) = &manifest.placement else {
        if is_host(&manifest.target.device) {
            return Vec::new();
        }
        let note = "the pass was not traced, so nobody knows where its operators ran".to_owned();
        return vec![Finding::about(
            target,
            "placement/trace",
            Verdict::Unchecked,
            Some(Cause::Fallback),
            note,
        )];
    };
    // Everything elsewhere is one row already.
    if is_elsewhere(manifest) {
        return Vec::new();
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mut row = |fallback: &Fallback| {
        let mut name = name_of(fallback);
        let count = names.entry(name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            name = format!("{name} ({count})");
        }
        judge(target, &name, fallback, placement, policy)
    };
    placement.fallbacks.iter().map(&mut row).collect()
}

/// Phase, place and operator: what a person looks for.
fn name_of(fallback: &Fallback) -> String {
    let place = match (fallback.path.as_str(), fallback.node) {
        ("", None) => String::new(),
        ("", Some(node)) => format!("#{node}/"),
        (path, _) => format!("{path}/"),
    };
    format!("{PREFIX}{}/{place}{}", fallback.phase.name(), fallback.operator)
}

fn judge(target: &str, name: &str, fallback: &Fallback, placement: &Placement, policy: &Policy) -> Finding {
    let whole = fallback.kind == FallbackKind::DeviceNotAsked;
    let allowed = policy.allows(&fallback.operator).filter(|_| !whole);
    let (verdict, reason) = match (allowed, policy.mode) {
        _ if whole && placement.device_unused() => {
            (Verdict::Invalid, "the device that was asked for did nothing")
        }
        (Some(entry), _) => (Verdict::Allowed, entry.reason.as_str()),
        (None, PlacementMode::Report) if !whole => (Verdict::Allowed, "placement is reported, not judged"),
        (None, _) => {
            (Verdict::Outside, "work that leaves the device is a deviation although every value agrees")
        }
    };
    let mut finding =
        Finding::about(target, name, verdict, Some(Cause::Fallback), describe(fallback, placement));
    if whole {
        finding.cause = Some(Cause::WrongDevice);
    }
    if let Some(shape) = fallback.shapes.first() {
        finding.shape.clone_from(shape);
    }
    finding.notes.push(format!("{reason} (placement = \"{}\")", policy.mode.name()));
    if let Some(entry) = allowed {
        finding.band = Some(AppliedBand {
            pass: 0.0,
            fail: 0.0,
            unit: "calls".to_owned(),
            slack_ulp: None,
            rule: "placement.allow".to_owned(),
            line: entry.place.to_string(),
            reason: entry.reason.clone(),
        });
        finding.deviation = Some(f64::from(fallback.calls_per_pass()));
    }
    finding
}

/// In one sentence.
fn describe(fallback: &Fallback, placement: &Placement) -> String {
    let mut text = fallback.kind.name().to_owned();
    if !fallback.reason.is_empty() {
        text = format!("{text}: {}", fallback.reason);
    }
    let arguments = fallback.arguments();
    if !arguments.is_empty() {
        text = format!("{text}; arguments {arguments}");
    }
    let calls = fallback.calls_per_pass();
    text = format!("{text}; {calls} {} a pass", if calls == 1 { "call" } else { "calls" });
    if placement.steps > 1 {
        let hit = fallback.steps_hit();
        let steps = if fallback.in_each_step() {
            format!("in each of {} steps", placement.steps)
        } else {
            format!("in {hit} of {} steps", placement.steps)
        };
        text = format!("{text}, {steps}");
    }
    if fallback.bytes_to_host + fallback.bytes_to_device > 0 {
        text = format!(
            "{text}; {} bytes to the host, {} back in all steps",
            fallback.bytes_to_host, fallback.bytes_to_device
        );
    }
    if fallback.share > 0.0 {
        text = format!("{text}; {:.1} % of the time", fallback.share * 100.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tolerance::{AllowedFallback, Place};
    use crate::trace::Phase;

    fn fallback() -> Fallback {
        Fallback {
            kind: FallbackKind::OperatorOnCpu,
            operator: "aten::_softmax".to_owned(),
            phase: Phase::Forward,
            node: Some(3),
            path: "encoder.attention".to_owned(),
            shapes: vec![vec![2, 4]],
            dtypes: vec!["f32".to_owned()],
            calls: vec![1, 0],
            bytes_to_host: 32,
            bytes_to_device: 32,
            share: 0.25,
            reason: String::new(),
        }
    }

    fn placement(fallbacks: Vec<Fallback>) -> Placement {
        let operators = [("mps:0".to_owned(), 9)].into();
        Placement { asked: "mps:0".to_owned(), steps: 2, operators, fallbacks }
    }

    fn judged(policy: &Policy, fallback: &Fallback) -> Finding {
        judge("torch:mps:0@f32", &name_of(fallback), fallback, &placement(vec![fallback.clone()]), policy)
    }

    #[test]
    fn a_fallback_is_outside_unless_the_policy_lists_its_operator_or_only_reports() {
        let allow = vec![AllowedFallback {
            operator: "aten::_softmax".to_owned(),
            reason: "known".to_owned(),
            place: Place { file: "mine.toml".to_owned(), line: 7 },
        }];
        let policy = |mode, allow: &[AllowedFallback]| Policy { mode, allow: allow.to_vec() };
        let strict = judged(&policy(PlacementMode::Strict, &allow), &fallback());
        assert_eq!((strict.verdict, strict.cause), (Verdict::Outside, Some(Cause::Fallback)));
        assert_eq!(strict.quantity, "placement/forward/encoder.attention/aten::_softmax");
        let note = &strict.notes[0];
        for part in ["in 1 of 2 steps", "32 bytes to the host", "25.0 %", "f32 [2, 4]", "1 call a pass"] {
            assert!(note.contains(part), "{part}: {note}");
        }
        let listed = judged(&policy(PlacementMode::AllowListed, &allow), &fallback());
        assert_eq!(listed.verdict, Verdict::Allowed);
        assert_eq!(listed.band.unwrap().line, "mine.toml:7");
        let other = Fallback { operator: "aten::mm".to_owned(), ..fallback() };
        assert_eq!(judged(&policy(PlacementMode::AllowListed, &allow), &other).verdict, Verdict::Outside);
        assert_eq!(judged(&policy(PlacementMode::Report, &[]), &other).verdict, Verdict::Allowed);
    }

    #[test]
    fn a_device_that_was_not_asked_for_can_be_neither_listed_nor_merely_reported() {
        let other = Fallback { kind: FallbackKind::DeviceNotAsked, ..fallback() };
        let policy = Policy { mode: PlacementMode::Report, allow: Vec::new() };
        assert_eq!(judged(&policy, &other).verdict, Verdict::Outside);
    }
}
