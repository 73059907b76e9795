//! Transform convolutions (Winograd, FFT): recognised, not condemned.

use super::attempt::{Attempt, Judge, Outcome, Status};
use super::floor::local;
use super::judge::{Bands, Fault, Multiples};
use super::trial::{Trial, Variant};
use crate::engine::Engine;
use crate::numerics::{DType, Role};

/// Errors beyond those of a direct convolution, at most: in multiples of the band that fails.
const TRANSFORM: f64 = 10.0;

/// A transform convolution is off by a little, on integers too, and is no fault. A direct one
/// is exact on integers; if it is not within its floor otherwise, something is wrong.
pub(super) fn recognise<E: Engine>(engine: &E, trial: &Trial, judge: &Judge<'_>, outcome: &mut Outcome) {
    let most = TRANSFORM * judge.bands.isolated(Role::Conv, trial.dtype).fail;
    // Integers are judged as exact; how far off they are is asked of the ordinary floor.
    let integers = Trial { variant: Variant::Integers, ..trial.clone() };
    let Some(on_integers) = error(engine, &integers, judge) else { return };
    let small = outcome.sightings.iter().all(|s| match s.judgement.fault {
        None => true,
        Some(Fault::Value) if trial.variant == Variant::Integers => on_integers <= most,
        Some(Fault::Value) => s.judgement.floors <= most,
        Some(_) => false,
    });
    if !small || on_integers == 0.0 {
        return;
    }
    for sighting in &mut outcome.sightings {
        if sighting.judgement.fault.take().is_some() {
            sighting.judgement.close = true;
            let seen = std::mem::take(&mut sighting.judgement.note);
            sighting.judgement.note = format!("a transform convolution (Winograd, FFT): {seen}");
        }
    }
    for status in [&mut outcome.forward, &mut outcome.backward] {
        if *status == Status::Wrong {
            *status = Status::Close;
        }
    }
}

/// Largest distance of results and gradients, in ordinary floors; `None` where it is not a
/// matter of size.
fn error<E: Engine>(engine: &E, trial: &Trial, judge: &Judge<'_>) -> Option<f64> {
    let prepared = trial.prepare(judge.seed).ok()?;
    let expected = local(&trial.case.op, &prepared.inputs, &prepared.incoming, &judge.rounding).ok()?;
    let loose = Judge { bands: &Loose, ..*judge };
    let mut seen = Outcome::new(trial);
    let gradients = prepared.program.outputs.loss.is_some();
    Attempt::new(engine, trial, &prepared, &expected, &loose).pass(&mut seen, gradients);
    let faults = seen.sightings.iter().any(|s| s.judgement.fault.is_some());
    let floors = seen.sightings.iter().map(|s| s.judgement.floors);
    (!faults).then(|| floors.fold(0.0, crate::numerics::max_nan))
}

/// Bands under which everything but nonsense is close: for measuring.
struct Loose;

impl Bands for Loose {
    fn isolated(&self, _: Role, _: DType) -> Multiples {
        Multiples { pass: 0.0, fail: 1e6 }
    }

    fn tail(&self) -> f64 {
        1e-8
    }
}
