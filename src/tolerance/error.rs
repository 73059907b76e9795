//! What can be wrong with a policy.

use std::fmt;
use std::ops::Range;

use super::Place;

/// One mistake in a policy file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct PolicyError {
    /// File and line.
    pub place: Place,
    /// Bytes of the file that are at fault.
    pub span: Range<usize>,
    /// What is wrong with them.
    #[source]
    pub problem: PolicyProblem,
}

/// A kind of mistake. Each message ends in what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyProblem {
    /// The file cannot be read.
    #[error("cannot read the policy: {0}; check the path after `--policy`")]
    Unreadable(String),
    /// Not TOML.
    #[error("not valid TOML: {0}; correct the syntax")]
    Syntax(String),
    /// The schema number is not one that this version reads.
    #[error("schema {found} is not known to this version, which reads schema 1; set `schema = 1`")]
    Schema {
        /// What the file says.
        found: String,
    },
    /// `extends` names something else than the built-in policy.
    #[error("cannot extend `{0}`; the only policy to extend is `default`")]
    Extends(String),
    /// A key that does not exist.
    #[error("unknown key `{key}` in {table}; {}", suggest(.suggestion.as_deref(), .known))]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        table: String,
        /// The nearest key that exists.
        suggestion: Option<String>,
        /// Every key that exists there.
        known: Vec<&'static str>,
    },
    /// A precision, role, quantity, scope, unit or mode that does not exist.
    #[error("unknown {what} `{word}`; {}", suggest(.suggestion.as_deref(), .known))]
    UnknownWord {
        /// Which kind of word.
        what: &'static str,
        /// The word.
        word: String,
        /// The nearest word that exists.
        suggestion: Option<String>,
        /// Every word that exists.
        known: Vec<&'static str>,
    },
    /// A key that must be there is not.
    #[error("{table} has no `{key}`; add it")]
    MissingKey {
        /// Where.
        table: String,
        /// Which.
        key: &'static str,
    },
    /// A rule does not say why.
    #[error("band `{id}` has no reason; say in `reason` why its numbers have their values")]
    MissingReason {
        /// The rule.
        id: String,
    },
    /// A value of another type.
    #[error("`{key}` must be {expected}, found {found}; correct the value")]
    WrongType {
        /// The key.
        key: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Two rules with one name.
    #[error("the band id `{id}` is used already at {first}; give this rule a name of its own")]
    DuplicateId {
        /// The name.
        id: String,
        /// Where it was used first.
        first: Place,
    },
    /// A negative or non-finite tolerance.
    #[error("`{key}` of band `{id}` is {value}; a tolerance is a finite number, 0 or more")]
    Negative {
        /// The rule.
        id: String,
        /// `pass`, `fail` or `slack_ulp`.
        key: &'static str,
        /// Its value.
        value: f64,
    },
    /// The pass limit lies above the fail limit.
    #[error("band `{id}` passes up to {pass} but fails from {fail}; `pass` may not exceed `fail`")]
    PassAboveFail {
        /// The rule.
        id: String,
        /// Its pass limit.
        pass: f64,
        /// Its fail limit.
        fail: f64,
    },
    /// Only values without any error could meet the band.
    #[error(
        "band `{id}` passes up to {pass} {unit}, less than one rounding step of {precision} ({step} {unit}): \
         correct results would fail; raise `pass`, or name the precisions that it is meant for"
    )]
    BelowRounding {
        /// The rule.
        id: String,
        /// Its pass limit.
        pass: f64,
        /// Its unit.
        unit: &'static str,
        /// The coarsest precision that it applies to.
        precision: &'static str,
        /// One rounding step of it, in the unit.
        step: f64,
    },
    /// The signal itself would fit into the band.
    #[error(
        "band `{id}` fails from {fail} {unit}, which in {precision} is no less than the signal \
         (limit {limit} {unit}): nothing could fail it; lower `fail`"
    )]
    AboveSignal {
        /// The rule.
        id: String,
        /// Its fail limit.
        fail: f64,
        /// Its unit.
        unit: &'static str,
        /// A precision for which it is too wide.
        precision: &'static str,
        /// The smallest limit that is too wide.
        limit: f64,
    },
    /// Samples of something that has none, or another unit of a count.
    #[error("band `{id}`: the unit `samples` goes with the quantity `metric` and no other; {remedy}")]
    SamplesWithoutMetric {
        /// The rule.
        id: String,
        /// What to change.
        remedy: &'static str,
    },
    /// A setting outside its range.
    #[error("`{key}` is {value}; it must be {range}")]
    OutOfRange {
        /// The setting.
        key: String,
        /// Its value.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// Allow-list entries that have no effect.
    #[error(
        "operators are allowed to fall back, but the mode is `{mode}`; \
         set `mode = \"allow-listed\"` or remove the entries"
    )]
    AllowListUnused {
        /// The mode.
        mode: &'static str,
    },
    /// A combination for which no rule says anything.
    #[error(
        "no band for the quantity `{quantity}` of role `{role}` in {precision} ({scope}); \
         add a first rule for everything, or `extends = \"default\"`"
    )]
    Uncovered {
        /// Quantity.
        quantity: &'static str,
        /// Role.
        role: &'static str,
        /// Precision.
        precision: &'static str,
        /// Scope.
        scope: &'static str,
    },
}

fn suggest(suggestion: Option<&str>, known: &[&'static str]) -> String {
    let known = known.join(", ");
    match suggestion {
        Some(word) => format!("did you mean `{word}`? (known: {known})"),
        None => format!("use one of: {known}"),
    }
}

/// All mistakes of a policy, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyErrors {
    /// The file.
    pub file: String,
    /// Its text, for showing spans; empty if it could not be read.
    pub text: String,
    /// At least one.
    pub errors: Vec<PolicyError>,
}

impl std::error::Error for PolicyErrors {}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}
