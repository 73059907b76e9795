//! From rules to the [`Band`] of each quantity.

use serde::Serialize;

use super::rule::matches;
use super::{Place, Policy, Quantity, Rule, Scope, Unit};
use crate::numerics::Role;
use crate::precision::Precision;

/// What a policy needs to know of a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuantityDescription {
    /// Stable name, such as `gradient/head.weight`.
    pub name: String,
    /// What sort of thing.
    pub quantity: Quantity,
    /// Arithmetic that produced it.
    pub role: Role,
    /// Precision of the target.
    pub precision: Precision,
    /// Of a whole pass, or of one operator alone.
    pub scope: Scope,
}

/// The allowed deviation of one quantity, and the rule that says so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// Name of the quantity.
    pub quantity: String,
    /// At most this: within. Before widening for small tensors.
    pub pass: f64,
    /// More than this: outside.
    pub fail: f64,
    /// Unit of both.
    pub unit: Unit,
    /// A deviation up to this many ULP is within, whatever the unit.
    pub slack_ulp: Option<f64>,
    /// Rule that set the band.
    pub rule: String,
    /// Its file and line.
    pub place: Place,
    /// Why its numbers have their values.
    pub reason: String,
    /// Where they come from.
    pub source: String,
}

impl Policy {
    /// The rule for a quantity: the last one that matches. `None` only for a policy that was
    /// not read from a file: reading refuses gaps.
    #[must_use]
    pub fn rule_for(&self, quantity: &QuantityDescription) -> Option<&Rule> {
        let QuantityDescription { name, quantity, role, precision, scope } = quantity;
        self.rules.iter().rfind(|rule| {
            rule.covers(*precision, *role, *quantity, *scope)
                && rule.name.as_deref().is_none_or(|pattern| matches(pattern, name))
        })
    }

    /// The band of a quantity; see [`Policy::rule_for`].
    #[must_use]
    pub fn band_for(&self, quantity: &QuantityDescription) -> Option<Band> {
        self.rule_for(quantity).map(|rule| Band {
            quantity: quantity.name.clone(),
            pass: rule.pass,
            fail: rule.fail,
            unit: rule.unit,
            slack_ulp: rule.slack_ulp,
            rule: rule.id.clone(),
            place: rule.place.clone(),
            reason: rule.reason.clone(),
            source: rule.source.clone(),
        })
    }
}

/// The bands of all quantities, in their order.
#[must_use]
pub fn bands_for(policy: &Policy, quantities: &[QuantityDescription]) -> Vec<Band> {
    quantities.iter().filter_map(|quantity| policy.band_for(quantity)).collect()
}
