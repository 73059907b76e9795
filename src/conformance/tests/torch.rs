//! libtorch on the CPU: nothing false. What is wrong there was found by hand against f64, and
//! stands in `tolerances/known.toml` and `docs/known-deviations.md`.

use super::{Extent, run, sweep};
use crate::conformance::{KnownDefects, Outcome, Survey, Trial, Variant};
use crate::engine::torch::TorchEngine;
use crate::engine::{DeviceSpec, Engine};
use crate::numerics::DType;

#[test]
fn everything_wrong_in_the_quick_selection_is_known_and_explained() {
    let engine = TorchEngine::new(&DeviceSpec::CPU).unwrap();
    // All of f32, and plain calls in f16: the rest is in the full sweep, which takes minutes.
    let quick = sweep::trials(Extent::Quick);
    let chosen = |trial: &&Trial| match trial.dtype {
        DType::F32 => true,
        DType::F16 => trial.variant == Variant::Plain && !trial.case.name.contains("long"),
        _ => false,
    };
    let trials = quick.iter().filter(chosen);
    let outcomes: Vec<Outcome> = trials.map(|trial| run(&engine, trial)).collect();
    let known = KnownDefects::builtin().unwrap();
    let survey = Survey::of("torch:cpu", Some(engine.info()), &outcomes, &known);
    let unknown: Vec<String> = survey
        .wrong()
        .flat_map(|row| row.defects.iter().map(move |defect| (row.name(), defect)))
        .filter(|(_, defect)| defect.known.is_none())
        .map(|(name, d)| format!("{name} {}: {} {} {}", d.quantity, d.fault.name(), d.smallest, d.note))
        .collect();
    assert!(unknown.is_empty(), "{}:\n{}", unknown.len(), unknown.join("\n"));
}
