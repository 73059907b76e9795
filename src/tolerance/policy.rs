//! [`Policy`]: everything a verdict takes from a policy file.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::read::Source;
use super::{Formats, Place, PolicyError, PolicyErrors, PolicyProblem, Rule};
use crate::numerics::ErrorModel;

/// Text of the built-in policy.
pub(super) const BUILTIN: &str = include_str!("../../tolerances/default.toml");
/// Its path in the source tree, for citing lines.
pub(super) const BUILTIN_FILE: &str = "tolerances/default.toml";

/// A policy, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `default`, or the file as it was given.
    pub name: String,
    /// Coefficients of the error model.
    pub model: ErrorModel,
    /// Settings of a run.
    pub run: RunSettings,
    /// What each dtype computes in.
    pub formats: Formats,
    /// What is held against a target that computes elsewhere.
    pub placement: Placement,
    /// Rules in order; the last matching one wins.
    pub rules: Vec<Rule>,
}

/// Settings of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunSettings {
    /// Chance that a correct run raises an alarm, over all its quantities.
    pub alpha_run: f64,
    /// Noisy replicas of the reference behind a floor.
    pub mc_replicas: u32,
    /// Largest share of the signal that a floor may have; above, a quantity is inconclusive.
    pub power_floor: f64,
    /// Largest share of inconclusive gradients in a check that is complete.
    pub inconclusive_gradients: f64,
}

impl RunSettings {
    /// Chance of a false alarm for one of `quantities` (Bonferroni), for
    /// [`super::widening`].
    #[must_use]
    pub fn tail(&self, quantities: usize) -> f64 {
        self.alpha_run / quantities.max(1) as f64
    }
}

/// What happens when an operator runs elsewhere than on the target's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementMode {
    /// It is a deviation.
    Strict,
    /// It is a deviation unless the operator is on the list.
    AllowListed,
    /// It is reported, and no deviation.
    Report,
}

impl PlacementMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Strict, Self::AllowListed, Self::Report];

    /// Name in policies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::AllowListed => "allow-listed",
            Self::Report => "report",
        }
    }
}

/// An operator that may run elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedFallback {
    /// `ATen` name of the operator.
    pub operator: String,
    /// Why that is accepted.
    pub reason: String,
    /// Where the entry stands.
    pub place: Place,
}

/// Placement part of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Mode.
    pub mode: PlacementMode,
    /// Operators that may run elsewhere, in `allow-listed` mode.
    pub allow: Vec<AllowedFallback>,
}

impl Placement {
    /// The entry that allows `operator` to run elsewhere, if it is allowed. In `report` mode
    /// nothing is allowed, but nothing is held against the target either.
    #[must_use]
    pub fn allows(&self, operator: &str) -> Option<&AllowedFallback> {
        match self.mode {
            PlacementMode::AllowListed => self.allow.iter().find(|entry| entry.operator == operator),
            PlacementMode::Strict | PlacementMode::Report => None,
        }
    }
}

impl Policy {
    /// The built-in policy.
    ///
    /// # Errors
    /// Never in a released version: a test reads it.
    pub fn builtin() -> Result<Self, PolicyErrors> {
        Source::new(BUILTIN_FILE, BUILTIN).read().map(|policy| Self { name: "default".to_owned(), ..policy })
    }

    /// Reads a policy file.
    ///
    /// # Errors
    /// All mistakes of the file.
    pub fn load(path: &Path) -> Result<Self, PolicyErrors> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&path.display().to_string(), &text),
            Err(error) => {
                let file = path.display().to_string();
                let place = Place { file: file.clone(), line: 1 };
                let problem = PolicyProblem::Unreadable(error.to_string());
                let errors = vec![PolicyError { place, span: 0..0, problem }];
                Err(PolicyErrors { file, text: String::new(), errors })
            }
        }
    }

    /// Reads a policy from text; `file` is what its lines are cited by.
    ///
    /// # Errors
    /// All mistakes of the text.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyErrors> {
        Source::new(file, text).read()
    }

    /// Hash of everything that can change a verdict: numbers, patterns and their order, not
    /// reasons, comments, file names or layout. 64 hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> String {
        blake3::hash(self.canonical().as_bytes()).to_hex().to_string()
    }

    fn canonical(&self) -> String {
        // `Debug` of f64 is the shortest text that reads back to the same bits.
        let mut text = format!("schema 1\n{:?}\n{:?}\n", self.model, self.run);
        for (name, format) in &self.formats.0 {
            let _ = writeln!(text, "format {name} {format:?}");
        }
        let allowed: Vec<_> = self.placement.allow.iter().map(|entry| &entry.operator).collect();
        let _ = writeln!(text, "placement {} {allowed:?}", self.placement.mode.name());
        for rule in &self.rules {
            let Rule { id, precision, role, quantity, scope, name, unit, pass, fail, slack_ulp, .. } = rule;
            let _ = writeln!(
                text,
                "band {id:?} {precision:?} {role:?} {quantity:?} {scope:?} {name:?} {unit:?} {pass:?} {fail:?} \
                 {slack_ulp:?}"
            );
        }
        text
    }
}
