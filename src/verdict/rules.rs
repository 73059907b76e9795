//! A policy as the verdict asks for it.

use super::{AppliedBand, Rules};
use crate::numerics::{DType, Role, max_nan};
use crate::precision::Precision;
use crate::recording::{Floor, Quantity};
use crate::tolerance::{self, Policy, QuantityDescription, Scope};

/// The rules of one policy for one target's precision.
#[derive(Debug)]
pub struct PolicyRules<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The target's precision.
    pub precision: Precision,
    /// Number of quantities over which the false-alarm target is shared.
    pub quantities: usize,
}

impl Rules for PolicyRules<'_> {
    fn band(&self, quantity: &Quantity) -> AppliedBand {
        let description = describe(quantity, self.precision);
        match self.policy.band_for(&description) {
            Some(band) => AppliedBand {
                pass: band.pass,
                fail: band.fail,
                unit: band.unit.name().to_owned(),
                slack_ulp: band.slack_ulp,
                rule: band.rule,
                line: band.place.to_string(),
                reason: band.reason,
            },
            // Reading a policy refuses gaps; should there be one, nothing may pass by it.
            None => AppliedBand {
                pass: 0.0,
                fail: 0.0,
                unit: "no rule".to_owned(),
                slack_ulp: None,
                rule: "no rule".to_owned(),
                line: self.policy.name.clone(),
                reason: "the policy has no rule for this quantity".to_owned(),
            },
        }
    }

    fn widening(&self, floor: &Floor) -> f64 {
        tolerance::widening(floor.degrees_of_freedom, floor.replicas, self.policy.run.tail(self.quantities))
    }

    fn power_floor(&self) -> f64 {
        self.policy.run.power_floor
    }

    fn flip_multiple(&self) -> f64 {
        let logits = QuantityDescription {
            name: "logits".to_owned(),
            quantity: tolerance::Quantity::Logits,
            role: Role::Matmul,
            precision: self.precision,
            scope: Scope::EndToEnd,
        };
        self.policy.band_for(&logits).map_or(0.0, |band| band.fail)
    }

    fn placement(&self) -> &tolerance::Placement {
        &self.policy.placement
    }

    fn unit_roundoff(&self) -> f64 {
        let matmul = self.policy.formats.of_matmul(self.precision);
        max_nan(max_nan(matmul.u_in, matmul.u_store), DType::F64.unit_roundoff())
    }
}

/// A quantity as a policy knows it.
#[must_use]
pub fn describe(quantity: &Quantity, precision: Precision) -> QuantityDescription {
    QuantityDescription {
        name: quantity.name.clone(),
        quantity: tolerance::Quantity::of(&quantity.name).unwrap_or(tolerance::Quantity::Activation),
        role: quantity.role,
        precision,
        scope: Scope::EndToEnd,
    }
}
