//! Whether a deviation follows the engine or the device: read off the grid of targets.
//!
//! Engine and device are two factors. A row that is outside on one target is looked up on
//! the targets of the same precision: the same engine on other devices, and other engines
//! on the same device. Who agrees there cannot be what causes it.

use serde::{Deserialize, Serialize};

use super::{Finding, Verdict};
use crate::recording::TargetId;

/// What a deviation follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    /// The engine: another engine on the same device agrees.
    Engine,
    /// The device: the same engine on another device agrees.
    Device,
    /// Neither alone: the engine is right elsewhere, the device is right under another engine.
    Pair,
    /// Every target deviates here: look at the reference, the model or the batch.
    Everywhere,
    /// There is no other target to tell.
    Open,
}

/// A factor with what shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// What it follows.
    pub follows: Factor,
    /// In one sentence.
    pub because: String,
}

/// Gives every deviating row its attribution. `targets` are all that took part.
pub fn attribute(findings: &mut [Finding], targets: &[TargetId]) {
    let judged: Vec<(String, String, Verdict)> =
        findings.iter().map(|f| (f.target.clone(), f.quantity.clone(), f.verdict)).collect();
    let verdict_of = |target: &TargetId, quantity: &str| {
        judged.iter().find(|(t, q, _)| *t == target.name && q == quantity).map(|(.., verdict)| *verdict)
    };
    for finding in findings.iter_mut().filter(|f| f.verdict == Verdict::Outside && is_compared(f)) {
        let Some(own) = targets.iter().find(|t| t.name == finding.target) else { continue };
        let (mut engine, mut device) = (Peers::default(), Peers::default());
        for other in targets.iter().filter(|t| t.precision == own.precision && t.name != own.name) {
            let Some(verdict) = verdict_of(other, &finding.quantity) else { continue };
            if other.engine == own.engine {
                engine.add(other, verdict);
            } else if other.device == own.device {
                device.add(other, verdict);
            }
        }
        finding.attribution = Some(conclude(&engine, &device));
    }
}

/// Rows about numbers; rows about a target as a whole are about nothing else.
fn is_compared(finding: &Finding) -> bool {
    !finding.quantity.starts_with("target") && !finding.quantity.starts_with(super::placement::PREFIX)
}

/// Targets that share one factor with the deviating one.
#[derive(Default)]
struct Peers {
    agree: Vec<String>,
    deviate: Vec<String>,
}

impl Peers {
    fn add(&mut self, target: &TargetId, verdict: Verdict) {
        match verdict {
            Verdict::Within | Verdict::Marginal => self.agree.push(target.name.clone()),
            Verdict::Outside => self.deviate.push(target.name.clone()),
            _ => {}
        }
    }
}

/// `same_engine`: that engine elsewhere; `same_device`: other engines there.
fn conclude(same_engine: &Peers, same_device: &Peers) -> Attribution {
    let list = |names: &[String]| names.join(", ");
    let verb =
        |names: &[String], verb: &str| if names.len() == 1 { format!("{verb}s") } else { verb.to_owned() };
    let agree = |names: &[String]| format!("{} {}", list(names), verb(names, "agree"));
    let too = |names: &[String]| format!("{} {} too", list(names), verb(names, "deviate"));
    let (follows, because) = match (
        same_engine.agree.is_empty(),
        same_engine.deviate.is_empty(),
        same_device.agree.is_empty(),
        same_device.deviate.is_empty(),
    ) {
        (false, _, false, _) => {
            let all: Vec<String> = same_engine.agree.iter().chain(&same_device.agree).cloned().collect();
            (Factor::Pair, format!("{}: it takes this engine on this device", agree(&all)))
        }
        (true, true, false, _) => (
            Factor::Engine,
            format!(
                "{} on the same device; no other device of this engine was run",
                agree(&same_device.agree)
            ),
        ),
        (true, false, false, _) => {
            (Factor::Engine, format!("{}; {}", too(&same_engine.deviate), agree(&same_device.agree)))
        }
        (false, _, true, true) => (
            Factor::Device,
            format!(
                "{} with the same engine; no other engine was run on this device",
                agree(&same_engine.agree)
            ),
        ),
        (false, _, true, false) => {
            (Factor::Device, format!("{}; {}", too(&same_device.deviate), agree(&same_engine.agree)))
        }
        (true, true, true, true) => (
            Factor::Open,
            "no other target shares its engine or its device in this precision; add one to tell".to_owned(),
        ),
        (true, _, true, _) => {
            let all: Vec<String> = same_engine.deviate.iter().chain(&same_device.deviate).cloned().collect();
            (Factor::Everywhere, format!("{}: look at the model, the batch or the reference", too(&all)))
        }
    };
    Attribution { follows, because }
}

impl Attribution {
    /// In one sentence, for tables.
    #[must_use]
    pub fn sentence(&self) -> String {
        let what = match self.follows {
            Factor::Engine => "follows the engine",
            Factor::Device => "follows the device",
            Factor::Pair => "follows engine and device together",
            Factor::Everywhere => "is everywhere",
            Factor::Open => "cannot be attributed",
        };
        format!("{what}: {}", self.because)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(engine: &str, device: &str) -> TargetId {
        TargetId {
            name: format!("{engine}:{device}@f32"),
            engine: engine.to_owned(),
            device: device.to_owned(),
            precision: "f32".to_owned(),
        }
    }

    /// What the first target's deviation follows, given the verdicts of all.
    fn follows(all: &[(&str, &str, Verdict)]) -> Factor {
        let targets: Vec<TargetId> = all.iter().map(|(engine, device, _)| target(engine, device)).collect();
        let mut findings: Vec<Finding> = targets
            .iter()
            .zip(all)
            .map(|(target, (.., verdict))| {
                Finding::about(&target.name, "logits", *verdict, None, String::new())
            })
            .collect();
        attribute(&mut findings, &targets);
        findings[0].attribution.as_ref().unwrap().follows
    }

    #[test]
    fn the_grid_of_targets_tells_engine_from_device() {
        use Verdict::{Outside, Skipped, Within};
        let bad = ("torch", "mps", Outside);
        assert_eq!(follows(&[bad]), Factor::Open);
        assert_eq!(follows(&[bad, ("torch", "cpu", Within)]), Factor::Device);
        assert_eq!(follows(&[bad, ("torch", "cpu", Within), ("candle", "mps", Outside)]), Factor::Device);
        assert_eq!(follows(&[bad, ("candle", "mps", Within)]), Factor::Engine);
        assert_eq!(follows(&[bad, ("candle", "mps", Within), ("torch", "cpu", Outside)]), Factor::Engine);
        assert_eq!(follows(&[bad, ("candle", "mps", Within), ("torch", "cpu", Within)]), Factor::Pair);
        assert_eq!(
            follows(&[bad, ("candle", "mps", Outside), ("torch", "cpu", Outside)]),
            Factor::Everywhere
        );
        // What was not compared says nothing, and neither does a target that shares nothing.
        assert_eq!(follows(&[bad, ("torch", "cpu", Skipped)]), Factor::Open);
        assert_eq!(follows(&[bad, ("candle", "cpu", Within)]), Factor::Open);
    }

    #[test]
    fn rows_that_agree_and_rows_about_a_target_get_none() {
        let targets = [target("torch", "cpu"), target("candle", "cpu")];
        let row = |quantity: &str, verdict| {
            Finding::about(&targets[0].name, quantity, verdict, None, String::new())
        };
        let mut findings = [row("loss", Verdict::Within), row("target/device", Verdict::Outside)];
        attribute(&mut findings, &targets);
        assert!(findings.iter().all(|f| f.attribution.is_none()));
    }
}
