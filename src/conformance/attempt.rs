//! A trial on an engine: run, judge, say what is wrong.

use std::cell::OnceCell;

use serde::{Deserialize, Serialize};

use super::floor::{Expected, Local, Rounding, local};
use super::judge::{Bands, Fault, Judgement, judge};
use super::probes::identify;
use super::transform;
use super::trial::{Lane, Prepared, Trial, Variant};
use crate::conformance::Fill;
use crate::engine::interpreter::{Gradient, PassError, PassOptions, PassOutput, run_pass};
use crate::engine::{Engine, EngineError, Support};
use crate::numerics::{DType, FloatFormat, Role};
use crate::program::Value;
use crate::tensor::HostTensor;
use crate::trace::Phase;

/// What a direction of a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The operator has no such direction.
    None,
    /// Within.
    Right,
    /// Between the multiple that passes and the one that fails.
    Close,
    /// Less accurate than with an f32 accumulator, as sums and steps in the 16-bit dtype are.
    Coarse,
    /// A fault.
    Wrong,
    /// The engine declares that it has no such thing.
    Unsupported,
    /// Could not be tried; the reason is noted.
    Untested,
}

/// Something that was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sighting {
    /// `result.0`, `gradient of weight`.
    pub quantity: String,
    /// How it compares.
    pub judgement: Judgement,
}

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the trial.
    pub trial: String,
    /// `ATen` name of the operator.
    pub operator: String,
    /// Dtype of the float inputs.
    pub dtype: DType,
    /// Kernel set, unless it is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// Elements of all inputs: how small the trial is.
    pub elements: usize,
    /// Results.
    pub forward: Status,
    /// Gradients.
    pub backward: Status,
    /// Name of the decomposition that stands in for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decomposed: Option<String>,
    /// Why a direction is unsupported or untested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Mode that the target computed in, of a trial that asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Faults, and what is close to one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sightings: Vec<Sighting>,
}

impl Outcome {
    /// A trial of which nothing is known yet.
    #[must_use]
    pub fn new(trial: &Trial) -> Self {
        let elements = trial.case.inputs.iter().map(|i| i.shape.iter().product::<usize>()).sum();
        Self {
            trial: trial.to_string(),
            operator: trial.case.op.name().to_owned(),
            dtype: trial.dtype,
            kernels: trial.kernels.map(str::to_owned),
            elements,
            forward: Status::Untested,
            backward: Status::Untested,
            decomposed: None,
            reason: None,
            mode: None,
            sightings: Vec::new(),
        }
    }

    /// Whether either direction is wrong.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.forward == Status::Wrong || self.backward == Status::Wrong
    }

    pub(super) fn see(&mut self, quantity: &str, judgement: Judgement) -> Status {
        let status = match &judgement {
            Judgement { fault: Some(_), .. } => Status::Wrong,
            Judgement { coarse: true, .. } => Status::Coarse,
            Judgement { close: true, .. } => Status::Close,
            _ => return Status::Right,
        };
        self.sightings.push(Sighting { quantity: quantity.to_owned(), judgement });
        status
    }
}

/// By what trials are judged.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// Rounding of a correct engine.
    pub rounding: Rounding<'a>,
    /// Multiples of the floor.
    pub bands: &'a dyn Bands,
    /// Seed of all values.
    pub seed: u64,
}

/// Runs one trial. Never fails: what prevents it is part of the outcome.
pub fn attempt<E: Engine>(engine: &E, trial: &Trial, judge: &Judge<'_>) -> Outcome {
    let mut outcome = Outcome::new(trial);
    let prepared = match trial.prepare(judge.seed) {
        Ok(prepared) => prepared,
        Err(error) => {
            outcome.reason = Some(error.to_string());
            return outcome;
        }
    };
    let trains = prepared.program.outputs.loss.is_some();
    if !trains {
        outcome.backward = Status::None;
    }
    let declared = |phase| {
        let node = &prepared.program.nodes[prepared.node];
        let types: Vec<&Value> = node.inputs.iter().map(|id| prepared.program.value(*id)).collect();
        let dtype = node.outputs.first().map_or(trial.dtype, |id| prepared.program.value(*id).dtype);
        engine.supports(&trial.case.op, dtype, &types, phase)
    };
    match declared(Phase::Forward) {
        Support::Unsupported(reason) => {
            outcome.forward = Status::Unsupported;
            outcome.reason = Some(reason);
        }
        Support::Decomposed(name) => outcome.decomposed = Some(name.to_owned()),
        Support::Native => {}
    }
    if trains && let Support::Unsupported(reason) = declared(Phase::Backward) {
        outcome.backward = Status::Unsupported;
        outcome.reason.get_or_insert(reason);
    }
    if outcome.forward == Status::Unsupported && outcome.backward != Status::Untested {
        return outcome;
    }
    let mut expected = match local(&trial.case.op, &prepared.inputs, &prepared.incoming, &judge.rounding) {
        Ok(expected) => expected,
        Err(error) => {
            outcome.reason = Some(format!("the reference: {error}"));
            return outcome;
        }
    };
    if trial.variant == Variant::Integers {
        let all = expected.results.iter_mut().chain(expected.gradients.iter_mut().flatten());
        all.for_each(|expected| expected.sigma.fill(0.0));
    }
    let attempt = Attempt::new(engine, trial, &prepared, &expected, judge);
    if outcome.forward == Status::Untested {
        outcome.forward = attempt.pass(&mut outcome, false);
    }
    // What an infinity does to a gradient depends on how the formula is written.
    let infinite = matches!(trial.variant, Variant::Special(_, Lane::Infinity | Lane::MinusInfinity));
    if outcome.backward == Status::Untested && (trial.variant == Variant::Mode || infinite) {
        outcome.backward = Status::None;
    }
    if outcome.backward == Status::Untested {
        outcome.backward = attempt.pass(&mut outcome, true);
    }
    if trial.case.op.role() == Role::Conv && outcome.is_wrong() {
        transform::recognise(engine, trial, judge, &mut outcome);
    }
    outcome
}

pub(super) struct Attempt<'a, E> {
    engine: &'a E,
    trial: &'a Trial,
    prepared: &'a Prepared,
    expected: &'a Local,
    judge: &'a Judge<'a>,
    coarse: OnceCell<Option<Local>>,
}

impl<'a, E: Engine> Attempt<'a, E> {
    pub(super) const fn new(
        engine: &'a E,
        trial: &'a Trial,
        prepared: &'a Prepared,
        expected: &'a Local,
        judge: &'a Judge<'a>,
    ) -> Self {
        Self { engine, trial, prepared, expected, judge, coarse: OnceCell::new() }
    }

    /// One pass and what came of it. Results are judged in both: an engine may take another
    /// kernel where a gradient will be asked for.
    pub(super) fn pass(&self, outcome: &mut Outcome, gradients: bool) -> Status {
        let output = match run(self.engine, self.prepared, gradients) {
            Ok(output) => output,
            Err(error) => return self.failed(outcome, &error),
        };
        let mut status = self.results(outcome, &output, gradients);
        if self.trial.variant == Variant::Mode {
            return worse(status, self.mode(outcome, &output));
        }
        if gradients {
            status = worse(status, self.gradients(outcome, &output));
        }
        if self.trial.variant == Variant::Again {
            status = worse(status, self.again(outcome, &output, gradients));
        }
        status
    }

    /// Names the mode, and holds it against the declared one.
    fn mode(&self, outcome: &mut Outcome, output: &PassOutput) -> Status {
        let Some((_, found)) = output.activations.first() else { return Status::Untested };
        let op = &self.trial.case.op;
        let Judge { rounding, bands, .. } = self.judge;
        let mode = match identify(op, &self.prepared.inputs, found, rounding, *bands) {
            Ok(mode) => mode,
            Err(error) => {
                outcome.reason = Some(error.to_string());
                return Status::Untested;
            }
        };
        outcome.mode = Some(mode.to_string());
        let format = (rounding.formats)(self.trial.dtype, op.role());
        if mode.fits(&format) {
            return Status::Right;
        }
        outcome.see("mode", Judgement::fault(Fault::ModeMismatch, format!("computes with {mode}")))
    }

    fn failed(&self, outcome: &mut Outcome, error: &PassError) -> Status {
        let own = self.prepared.program.describe_node(self.prepared.node);
        match error {
            PassError::Node { node, source } if *node == own => match source {
                EngineError::Unsupported(unsupported) => {
                    outcome.reason = Some(format!("declared, but: {}", unsupported.reason));
                }
                other => {
                    outcome.see("call", Judgement::fault(Fault::Refused, other.to_string()));
                    return Status::Wrong;
                }
            },
            PassError::Engine(error @ EngineError::Failed { op, .. }) if op == "backward" => {
                outcome.see("backward", Judgement::fault(Fault::Refused, error.to_string()));
                return Status::Wrong;
            }
            other => outcome.reason = Some(other.to_string()),
        }
        Status::Untested
    }

    fn results(&self, outcome: &mut Outcome, output: &PassOutput, gradients: bool) -> Status {
        let mut status = Status::Right;
        for (index, expected) in self.expected.results.iter().enumerate() {
            let name = format!("result.{index}");
            let Some((_, found)) = output.activations.iter().find(|(n, _)| *n == name) else {
                continue;
            };
            let quantity = if gradients { format!("{name} in training") } else { name };
            let judgement = judge(expected, found, self.judge.bands);
            let coarse = |local: &Local, _: &Rounding<'_>| local.results.get(index).cloned();
            let judgement = self.or_coarse(judgement, found, coarse);
            status = worse(status, outcome.see(&quantity, judgement));
        }
        status
    }

    fn gradients(&self, outcome: &mut Outcome, output: &PassOutput) -> Status {
        let mut status = Status::Right;
        for (index, input) in self.trial.case.inputs.iter().enumerate().filter(|(_, i)| i.differentiable) {
            let found = output.parameter_gradients.iter().find(|(name, _)| *name == input.name);
            let quantity = format!("gradient of {}", input.name);
            let wanted = self.wanted(self.expected, index, &self.judge.rounding);
            let judgement = match (wanted, found.map(|(_, gradient)| gradient)) {
                (Some(expected), Some(Gradient::Value(found))) => {
                    let judgement = judge(&expected, found, self.judge.bands);
                    self.or_coarse(judgement, found, |local, rounding| self.wanted(local, index, rounding))
                }
                (Some(_), _) => Judgement::fault(Fault::NoGradient, "none was delivered".to_owned()),
                (None, Some(Gradient::Value(_))) => {
                    Judgement::fault(Fault::UnexpectedGradient, "the operator has none".to_owned())
                }
                (None, _) => continue,
            };
            status = worse(status, outcome.see(&quantity, judgement));
        }
        status
    }

    /// The gradient of the program's input, which may hold it in another layout, and have
    /// another consumer.
    fn wanted(&self, local: &Local, index: usize, rounding: &Rounding<'_>) -> Option<Expected> {
        let expected = local.gradients.get(index)?.as_ref()?;
        let expected = match &self.prepared.added {
            Some((which, other)) if *which == index => expected.plus(other, rounding),
            _ => expected.clone(),
        };
        Some(expected.in_storage(self.prepared.placed.get(index)?, rounding))
    }

    /// A value that is beyond an f32 accumulator, but explained by sums and intermediate
    /// results in the 16-bit dtype itself, is coarse and not wrong. Sums of ones are there to
    /// show exactly that, and are not excused.
    fn or_coarse(
        &self,
        judgement: Judgement,
        found: &HostTensor,
        expected: impl Fn(&Local, &Rounding<'_>) -> Option<Expected>,
    ) -> Judgement {
        let half = matches!(self.trial.dtype, DType::F16 | DType::BF16);
        let inputs = &self.trial.case.inputs;
        let far_from_zero = inputs.iter().any(|input| matches!(input.fill, Fill::Around { .. }));
        if judgement.fault != Some(Fault::Value)
            || !half
            || self.trial.variant == Variant::Integers
            || inputs.iter().any(|input| input.fill == Fill::One)
        {
            return judgement;
        }
        let Judge { rounding, bands, .. } = self.judge;
        let formats = |dtype: DType, role: Role| {
            let format = (rounding.formats)(dtype, role);
            FloatFormat { u_acc: format.u_store, ..format }
        };
        let rounding = Rounding { formats: &formats, ..*rounding };
        let local = self.coarse.get_or_init(|| {
            local(&self.trial.case.op, &self.prepared.inputs, &self.prepared.incoming, &rounding).ok()
        });
        let expected = local.as_ref().and_then(|local| expected(local, &rounding));
        let Some(expected) = expected else { return judgement };
        if far_from_zero && relative(&expected.values, &found.to_f64()) > SIGNAL {
            return judgement;
        }
        match judge(&expected, found, *bands) {
            Judgement { fault: None, .. } => Judgement { fault: None, coarse: true, ..judgement },
            _ => judgement,
        }
    }

    /// The same call after one at another shape.
    fn again(&self, outcome: &mut Outcome, before: &PassOutput, gradients: bool) -> Status {
        if !self.engine.info().deterministic {
            return Status::Right;
        }
        if let Some(case) = &self.trial.between {
            let other = Trial { case: (**case).clone(), ..Trial::plain((**case).clone(), self.trial.dtype) };
            if let Ok(other) = other.prepare(self.judge.seed) {
                // What it gives is judged elsewhere.
                drop(run(self.engine, &other, gradients && other.program.outputs.loss.is_some()));
            }
        }
        let after = match run(self.engine, self.prepared, gradients) {
            Ok(output) => output,
            Err(error) => return self.failed(outcome, &error),
        };
        let mut status = Status::Right;
        for (name, before, after) in pairs(before, &after) {
            if before.bytes() != after.bytes() {
                let note = "other bits in a second call, after one at another shape".to_owned();
                outcome.see(&name, Judgement::fault(Fault::NotRepeatable, note));
                status = Status::Wrong;
            }
        }
        status
    }
}

/// Results and gradients of two passes, side by side.
fn pairs<'a>(a: &'a PassOutput, b: &'a PassOutput) -> Vec<(String, &'a HostTensor, &'a HostTensor)> {
    let results = a.activations.iter().zip(&b.activations);
    let results = results.map(|((name, a), (_, b))| (name.clone(), a, b));
    let gradients = a.parameter_gradients.iter().zip(&b.parameter_gradients);
    let gradients = gradients.filter_map(|((name, a), (_, b))| match (a, b) {
        (Gradient::Value(a), Gradient::Value(b)) => Some((format!("gradient of {name}"), a, b)),
        _ => None,
    });
    results.chain(gradients).collect()
}

fn run<E: Engine>(engine: &E, prepared: &Prepared, gradients: bool) -> Result<PassOutput, PassError> {
    let feed = |name: &str| {
        let at = prepared.program.inputs.iter().position(|input| input.name == name)?;
        prepared.feed.get(at).cloned()
    };
    let options = PassOptions { capture: true, gradients, ..PassOptions::default() };
    let program = if gradients { &prepared.program } else { &prepared.forward };
    run_pass(engine, program, &feed, options)
}

/// Share of the signal that a coarse error may have where the mean is far from zero: there
/// steps in 16 bits can lose everything, and that is not excused.
const SIGNAL: f64 = 0.10;

/// Norm of the difference over the norm of the exact values.
fn relative(exact: &[f64], found: &[f64]) -> f64 {
    let error: f64 = exact.iter().zip(found).map(|(a, b)| (a - b).powi(2)).sum();
    (error / exact.iter().map(|v| v * v).sum::<f64>()).sqrt()
}

/// The status that says more against an engine.
fn worse(a: Status, b: Status) -> Status {
    let rank = |status| match status {
        Status::Wrong => 4,
        Status::Untested => 3,
        Status::Coarse => 2,
        Status::Close => 1,
        _ => 0,
    };
    if rank(b) > rank(a) { b } else { a }
}
