//! [`Rule`]: one `[[band]]` of a policy, and the words it is written in.

use std::fmt;

use serde::Serialize;

use crate::numerics::Role;
use crate::precision::Precision;

/// What sort of thing is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// The scalar that is differentiated.
    Loss,
    /// A validation metric.
    Metric,
    /// Class scores.
    Logits,
    /// Output of a module.
    Activation,
    /// Gradient of a parameter.
    Gradient,
    /// Gradient of an input.
    InputGradient,
    /// Gradient of a module's output.
    ActivationGradient,
    /// Updated buffer.
    Buffer,
}

/// Where a deviation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Of a whole pass: own and inherited error.
    EndToEnd,
    /// Of one operator, replayed on the reference's own inputs.
    Isolated,
}

/// Unit of a band's two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Multiple of the predicted noise floor: ‖e‖ / floor.
    Floor,
    /// Largest |e| in units in the last place of the dtype, at the reference.
    Ulp,
    /// ‖e‖ / ‖reference‖.
    Relative,
    /// Number of samples whose prediction flipped unexplained.
    Samples,
}

/// A word of the policy language.
pub(super) trait Word: Copy + 'static {
    /// Every word with its meaning.
    fn words() -> Vec<(&'static str, Self)>;
}

impl Word for Quantity {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|q| (q.name(), q)).to_vec()
    }
}

impl Word for Scope {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|s| (s.name(), s)).to_vec()
    }
}

impl Word for Unit {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|u| (u.name(), u)).to_vec()
    }
}

impl Word for Role {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|r| (r.name(), r)).to_vec()
    }
}

impl Word for Precision {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|p| (p.name(), p)).to_vec()
    }
}

impl Quantity {
    /// Every quantity, in the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Loss,
        Self::Metric,
        Self::Logits,
        Self::Activation,
        Self::Gradient,
        Self::InputGradient,
        Self::ActivationGradient,
        Self::Buffer,
    ];

    /// Name in policies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Metric => "metric",
            Self::Logits => "logits",
            Self::Activation => "activation",
            Self::Gradient => "gradient",
            Self::InputGradient => "input_gradient",
            Self::ActivationGradient => "activation_gradient",
            Self::Buffer => "buffer",
        }
    }

    /// The sort of a quantity of this name (`gradient/head.weight`): what stands before
    /// the first slash.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let sort = name.split_once('/').map_or(name, |(sort, _)| sort);
        Self::ALL.into_iter().find(|q| q.name() == sort)
    }
}

impl Scope {
    /// Both scopes.
    pub const ALL: [Self; 2] = [Self::EndToEnd, Self::Isolated];

    /// Name in policies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndToEnd => "end_to_end",
            Self::Isolated => "isolated",
        }
    }
}

impl Unit {
    /// Every unit.
    pub const ALL: [Self; 4] = [Self::Floor, Self::Ulp, Self::Relative, Self::Samples];

    /// Name in policies and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ulp => "ulp",
            Self::Relative => "relative",
            Self::Samples => "samples",
        }
    }
}

/// A line of a policy file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// File as it was given; `tolerances/default.toml` for the built-in policy.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One `[[band]]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// Unique name.
    pub id: String,
    /// Precision it applies to; `None`: any.
    pub precision: Option<Precision>,
    /// Role it applies to; `None`: any.
    pub role: Option<Role>,
    /// Quantity it applies to; `None`: any.
    pub quantity: Option<Quantity>,
    /// Scope it applies to; `None`: both.
    pub scope: Option<Scope>,
    /// Pattern of quantity names, `*` standing for any characters; `None`: any name.
    pub name: Option<String>,
    /// Unit of `pass` and `fail`.
    pub unit: Unit,
    /// At most this: within.
    pub pass: f64,
    /// More than this: outside. Between the two: a warning.
    pub fail: f64,
    /// A deviation up to this many ULP is within, whatever the unit.
    pub slack_ulp: Option<f64>,
    /// Why the numbers have their values.
    pub reason: String,
    /// Where they come from.
    pub source: String,
    /// Where the rule stands.
    pub place: Place,
}

impl Rule {
    /// Whether the rule applies, the name aside.
    pub(super) fn covers(&self, precision: Precision, role: Role, quantity: Quantity, scope: Scope) -> bool {
        self.precision.is_none_or(|p| p == precision)
            && self.role.is_none_or(|r| r == role)
            && self.quantity.is_none_or(|q| q == quantity)
            && self.scope.is_none_or(|s| s == scope)
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any characters, none included.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, text, expected) in [
            ("loss", "loss", true),
            ("loss", "lossy", false),
            ("*", "", true),
            ("gradient/*.bias", "gradient/a.b.bias", true),
            ("gradient/*.bias", "gradient/a.weight", false),
            ("*a*b*", "xxaxxbxx", true),
            ("a*a", "a", false),
            ("a*bc*c", "abc", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_sort_of_a_quantity_is_read_off_its_name() {
        assert_eq!(Quantity::of("loss"), Some(Quantity::Loss));
        assert_eq!(Quantity::of("input_gradient/pixel_values"), Some(Quantity::InputGradient));
        assert_eq!(Quantity::of("gradients/x"), None);
    }
}
