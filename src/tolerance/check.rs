//! Is a rule one that can pass and can fail?

use std::ops::Range;

use super::rule::{Quantity, Scope, Unit};
use super::{Formats, PolicyProblem, Rule};
use crate::numerics::{ErrorModel, Role};
use crate::precision::Precision;

/// Mistakes of one rule; the ranges say where `pass` and `fail` stand.
pub(super) struct Spans {
    pub rule: Range<usize>,
    pub pass: Range<usize>,
    pub fail: Range<usize>,
}

/// Checks the numbers of a rule.
pub(super) fn check_rule(
    rule: &Rule,
    model: &ErrorModel,
    formats: &Formats,
    spans: &Spans,
) -> Vec<(Range<usize>, PolicyProblem)> {
    let mut problems = Vec::new();
    let id = || rule.id.clone();
    let numbers = [
        ("pass", Some(rule.pass), &spans.pass),
        ("fail", Some(rule.fail), &spans.fail),
        ("slack_ulp", rule.slack_ulp, &spans.rule),
    ];
    for (key, value, span) in numbers {
        if let Some(value) = value.filter(|v| !(v.is_finite() && *v >= 0.0)) {
            problems.push((span.clone(), PolicyProblem::Negative { id: id(), key, value }));
        }
    }
    if !problems.is_empty() {
        return problems; // what follows compares numbers
    }
    if rule.pass > rule.fail {
        let problem = PolicyProblem::PassAboveFail { id: id(), pass: rule.pass, fail: rule.fail };
        problems.push((spans.pass.clone(), problem));
    }
    if rule.unit == Unit::Samples && rule.quantity != Some(Quantity::Metric) {
        let remedy = "set `quantity = \"metric\"`";
        problems.push((spans.rule.clone(), PolicyProblem::SamplesWithoutMetric { id: id(), remedy }));
    }
    // The coarsest of the precisions that the rule applies to.
    let coarsest = Precision::ALL
        .into_iter()
        .filter(|p| rule.precision.is_none_or(|only| only == *p))
        .map(|p| (p, roundoff(p, formats)))
        .reduce(|a, b| if b.1 > a.1 { b } else { a });
    let Some((precision, u)) = coarsest else { return problems };
    let (precision, unit) = (precision.name(), rule.unit.name());
    let step = match rule.unit {
        Unit::Floor => 1.0,
        Unit::Ulp => 0.5,
        Unit::Relative => u,
        Unit::Samples => 0.0,
    };
    let bit_equal = rule.unit == Unit::Ulp && rule.pass == 0.0 && rule.role == Some(Role::Exact);
    if rule.pass < step && !bit_equal {
        let problem = PolicyProblem::BelowRounding { id: id(), pass: rule.pass, unit, precision, step };
        problems.push((spans.pass.clone(), problem));
    }
    let in_ulp = 0.5 / u;
    let limit = match rule.unit {
        Unit::Floor => 1.0 / (model.c_store * u),
        Unit::Ulp => in_ulp,
        Unit::Relative => 1.0,
        Unit::Samples => f64::INFINITY,
    };
    if rule.fail >= limit {
        let problem = PolicyProblem::AboveSignal { id: id(), fail: rule.fail, unit, precision, limit };
        problems.push((spans.fail.clone(), problem));
    }
    if let Some(fail) = rule.slack_ulp.filter(|slack| *slack >= in_ulp) {
        let problem = PolicyProblem::AboveSignal { id: id(), fail, unit: "ulp", precision, limit: in_ulp };
        problems.push((spans.rule.clone(), problem));
    }
    problems
}

/// Roundoff of what a precision stores, or reads operands with, whichever is coarser.
fn roundoff(precision: Precision, formats: &Formats) -> f64 {
    let format = formats.of_matmul(precision);
    if format.u_in > format.u_store { format.u_in } else { format.u_store }
}

/// The first combination for which no rule without a name pattern says anything.
pub(super) fn gap(rules: &[Rule]) -> Option<PolicyProblem> {
    for precision in Precision::ALL {
        for role in Role::ALL {
            for quantity in Quantity::ALL {
                for scope in Scope::ALL {
                    let covered =
                        rules.iter().any(|r| r.name.is_none() && r.covers(precision, role, quantity, scope));
                    if !covered {
                        return Some(PolicyProblem::Uncovered {
                            quantity: quantity.name(),
                            role: role.name(),
                            precision: precision.name(),
                            scope: scope.name(),
                        });
                    }
                }
            }
        }
    }
    None
}
