//! The checks themselves: nothing false on a correct engine, every planted fault seen, every
//! known fault of a real engine found.

mod candle;
mod planted;
mod simulated;
#[cfg(feature = "torch")]
mod torch;

use super::floor::Rounding;
use super::sweep::{self, Extent};
use super::{Bands, Judge, Multiples, Outcome, Trial, attempt};
use crate::engine::Engine;
use crate::numerics::{DType, ErrorModel, FloatFormat, Role};

/// The built-in policy's bands of one operator alone.
struct Isolated;

impl Bands for Isolated {
    fn isolated(&self, role: Role, dtype: DType) -> Multiples {
        match (role, dtype) {
            (Role::Exact, _) => Multiples { pass: 0.0, fail: 0.0 },
            (_, DType::BF16) => Multiples { pass: 2.0, fail: 3.0 },
            (_, DType::F64) => Multiples { pass: 4.3, fail: 8.5 },
            _ => Multiples { pass: 3.0, fail: 6.0 },
        }
    }

    fn tail(&self) -> f64 {
        1e-8
    }
}

fn correct(dtype: DType, _: Role) -> FloatFormat {
    FloatFormat::of(dtype)
}

fn judge() -> Judge<'static> {
    let rounding = Rounding { model: ErrorModel::default(), formats: &correct };
    Judge { rounding, bands: &Isolated, seed: 0 }
}

fn run<E: Engine>(engine: &E, trial: &Trial) -> Outcome {
    attempt(engine, trial, &judge())
}

/// A trial of the full sweep by name.
fn named(name: &str) -> Trial {
    let all = sweep::trials(Extent::Full);
    let found = all.into_iter().find(|trial| trial.to_string() == name);
    found.unwrap_or_else(|| panic!("there is no trial `{name}`"))
}

/// What is wrong, one line each.
fn wrong(outcomes: &[Outcome]) -> Vec<String> {
    let lines = outcomes.iter().flat_map(|outcome| {
        let faults = outcome.sightings.iter().filter(|s| s.judgement.fault.is_some());
        faults.map(|s| {
            let fault = s.judgement.fault.map_or("", super::Fault::name);
            format!(
                "{} {}: {fault} {:.1e} {}",
                outcome.trial, s.quantity, s.judgement.floors, s.judgement.note
            )
        })
    });
    lines.collect()
}

#[test]
fn names_of_trials_are_unique() {
    let all = sweep::trials(Extent::Full);
    let names: std::collections::BTreeSet<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), all.len());
}

#[test]
fn the_quick_selection_is_part_of_the_sweep_and_covers_every_operator_and_dtype() {
    let all: std::collections::BTreeSet<String> =
        sweep::trials(Extent::Full).iter().map(ToString::to_string).collect();
    let quick = sweep::trials(Extent::Quick);
    assert!(quick.iter().all(|trial| all.contains(&trial.to_string())));
    for dtype in sweep::FLOATS {
        for kind in crate::program::OpKind::ALL {
            assert!(quick.iter().any(|t| t.dtype == dtype && t.case.op.kind() == *kind), "{kind:?} {dtype}");
        }
    }
}
