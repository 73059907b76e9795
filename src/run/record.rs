//! From a plan to a recording, in this process.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use blake3::Hash;

use super::coverage::Coverage;
use super::device;
use super::engines::{EngineSettings, EngineVisitor, with_engine};
use super::hooks::{Hook, Hooked};
use super::plant::{Planted, deliver};
use super::quantities::quantities;
use super::{Plan, Prepared, Progress, RunError, Stage, evaluate, noise, own_peak_bytes};
use crate::engine::interpreter::{Feed, Gradient, PassError, PassOptions, PassOutput, run_pass};
use crate::engine::{BackwardRequest, Call, DeviceKind, Engine, EngineError};
use crate::environment::{Environment, Redaction};
use crate::precision;
use crate::program::Program;
use crate::recording::{
    BarePass, Check, Checks, Manifest, Memory, Quantity, QuantityKind, Recording, SCHEMA_VERSION, State,
    Timing, Tool, Writer,
};
use crate::tensor::{HostTensor, content_hash};
use crate::trace::{self, PassTrace, Phase, Placement};

/// Carries out `plan` in this process and writes its recording. `key` is [`Plan::key`].
///
/// # Errors
/// If the model, the data or the target cannot be used, or the recording not written;
/// nothing half-written is left.
pub fn execute(plan: &Plan, key: &str, progress: &Progress<'_>) -> Result<Recording, RunError> {
    let began = Instant::now();
    progress(Stage::Prepare, 0.0);
    // First, so that a wrong destination is told before anything is computed.
    let writer = Writer::create(&plan.destination)?;
    let prepared = Prepared::load(&plan.subject)?;
    let precise = precision::rewrite(&prepared.program, plan.target.precision)?;
    let timing = Timing { prepare_s: began.elapsed().as_secs_f64(), ..Timing::default() };
    progress(Stage::Engine, 0.0);
    let job = Job { plan, key, prepared: &prepared, precise: &precise, progress };
    let opened = Instant::now();
    let settings = EngineSettings::of(plan);
    with_engine(&plan.target, settings, Visit { job: &job, timing, opened, writer }).unwrap_or_else(
        |source| {
            let target = plan.target;
            Err(match source {
                EngineError::Absent { built, reason, .. } => RunError::Absent { target, built, reason },
                source => RunError::Engine { target, source },
            })
        },
    )
}

/// What every step of one execution needs.
pub(super) struct Job<'a> {
    pub plan: &'a Plan,
    pub key: &'a str,
    pub prepared: &'a Prepared,
    /// The base program in the dtypes of the target's precision.
    pub precise: &'a Program,
    pub progress: &'a Progress<'a>,
}

impl Job<'_> {
    pub(super) fn pass_error(&self, source: PassError) -> RunError {
        RunError::Pass { target: self.plan.target, source: Box::new(source) }
    }
}

struct Visit<'a> {
    job: &'a Job<'a>,
    timing: Timing,
    opened: Instant,
    writer: Writer,
}

impl EngineVisitor for Visit<'_> {
    type Output = Result<Recording, RunError>;

    fn visit<E: Engine>(mut self, engine: E) -> Self::Output {
        self.timing.engine_s = self.opened.elapsed().as_secs_f64();
        record(self.job, &engine, self.timing, self.writer)
    }
}

/// All passes of a plan on an open engine, and the recording of them.
fn record<E: Engine>(
    job: &Job<'_>,
    engine: &E,
    mut timing: Timing,
    mut writer: Writer,
) -> Result<Recording, RunError> {
    let plan = job.plan;
    let planted = match &plan.plant {
        None => None,
        Some(plant) => Some(
            Planted::new(plant, job.precise)
                .map_err(|reason| RunError::Plant { plant: plant.to_string(), reason })?,
        ),
    };
    let mut evidence = device::ask(job, engine)?;
    let between = Between::new(planted, job.progress, job.precise.nodes.len());
    let engine = Hooked { engine, hook: between };
    let coverage = Coverage::ask(&engine, job.precise);
    let part = coverage.computable(job.precise);
    let gradients = plan.captures.gradients && coverage.backward.is_none();
    let feed = job.prepared.feed(&part, &job.prepared.batch);
    let observer = Observer { engine: &engine, program: &part, feed: &feed, gradients };

    engine.hook.at(Stage::Bare);
    let mut bare = observer.bare_passes(plan.bare_passes, &mut timing).map_err(|e| job.pass_error(e))?;
    let mut memory =
        Memory { bare_peak_bytes: own_peak_bytes().filter(|_| plan.bare_passes > 0), ..Memory::default() };

    engine.hook.at(Stage::Forward);
    let options = PassOptions {
        capture: plan.captures.activations,
        gradients,
        activation_gradients: gradients && plan.captures.activation_gradients,
        trace: plan.trace,
    };
    let began = Instant::now();
    let output = run_pass(&engine, &part, &feed, options).map_err(|e| job.pass_error(e))?;
    timing.pass_s = began.elapsed().as_secs_f64();
    (timing.forward_s, timing.backward_s) = (output.forward_s, output.backward_s);

    engine.hook.at(Stage::Bare);
    let mut checks = observer.check(&output, &mut bare, &mut timing).map_err(|e| job.pass_error(e))?;
    let placement = if plan.trace {
        let (placement, repeated) = observer.placement(&output, plan.steps).map_err(|e| job.pass_error(e))?;
        checks.repeat(repeated);
        Some(placement)
    } else {
        None
    };
    if let Some(evidence) = &mut evidence {
        let options = PassOptions { gradients, ..PassOptions::default() };
        evidence.kernels = device::kernels(job, &engine, &mut || run_pass(&engine, &part, &feed, options))?;
    }
    let devices = output.devices.clone();
    for event in &output.events {
        writer.event(event)?;
    }
    let mut delivered = Delivered::of(output);

    engine.hook.at(Stage::Evaluate);
    let metrics = plan.evaluate && job.prepared.samples.is_some();
    let mut rows = quantities(&job.prepared.program, job.precise, plan.captures, metrics);
    coverage.mark(job.precise, &mut rows);
    let began = Instant::now();
    let mut evaluation = None;
    if metrics && coverage.forward.is_none() {
        let evaluated = evaluate::evaluate(job, &engine)?;
        timing.evaluation_s = Some(began.elapsed().as_secs_f64());
        evaluation = Some(evaluated.summary.clone());
        delivered.tensors.extend(evaluated.tensors());
    }

    let mut noise_record = None;
    if let Some(noise) = &plan.noise
        && plan.target.is_reference()
    {
        let began = Instant::now();
        noise::add_floors(job, noise, &mut rows, &mut delivered.tensors)?;
        timing.noise_s = Some(began.elapsed().as_secs_f64());
        noise_record = Some(noise.record());
    }

    deliver(plan.plant.as_ref(), &mut delivered.tensors);
    delivered.settle(&mut rows);
    (job.progress)(Stage::Write, 0.0);
    let began = Instant::now();
    let loss = delivered.tensors.get("loss").and_then(|t| t.to_f64().first().copied());
    delivered.write(&mut writer)?;
    timing.write_s = began.elapsed().as_secs_f64();
    memory.device_peak_bytes = engine.peak_memory_bytes();
    memory.peak_bytes = own_peak_bytes();
    let manifest = Manifest {
        schema_version: SCHEMA_VERSION,
        tool: Tool::this(),
        subject: job.prepared.subject.clone(),
        fingerprint: job.prepared.subject.fingerprint(),
        plan: job.key.to_owned(),
        target: plan.target.id(),
        engine: engine.info(),
        environment: Environment::gather(&Redaction::detect(plan.identify)),
        devices,
        device: evidence,
        placement,
        quantities: rows,
        tensors: BTreeMap::new(),
        loss,
        evaluation,
        timing,
        memory,
        checks,
        noise: noise_record,
        trace: None,
        planted: planted_words(plan),
    };
    Ok(writer.finish(manifest)?)
}

/// Faults that were planted on purpose, the emulated device's among them.
fn planted_words(plan: &Plan) -> Option<String> {
    let emulated = plan.target.device.kind == DeviceKind::MpsEmulated;
    let faults = plan.emulation.iter().filter(|e| emulated && !e.is_absence()).map(ToString::to_string);
    let words: Vec<String> = plan.plant.iter().map(ToString::to_string).chain(faults).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Passes without observation, and what they prove.
struct Observer<'a, E: Engine> {
    engine: &'a E,
    program: &'a Program,
    feed: &'a Feed<'a>,
    gradients: bool,
}

/// Loss, logits, gradients and buffers of a pass by hash; `None` for a gradient that the
/// engine does not have.
type Bits = BTreeMap<String, Option<Hash>>;

impl<E: Engine> Observer<'_, E> {
    fn bare(&self, timing: &mut Timing) -> Result<Bits, PassError> {
        let options = PassOptions { gradients: self.gradients, ..PassOptions::default() };
        let output = run_pass(self.engine, self.program, self.feed, options)?;
        timing.bare.push(BarePass { forward_s: output.forward_s, backward_s: output.backward_s });
        Ok(bits(&output))
    }

    fn bare_passes(&self, count: u32, timing: &mut Timing) -> Result<Vec<Bits>, PassError> {
        (0..count).map(|_| self.bare(timing)).collect()
    }

    /// Where the work of `observed` and of further traced passes, `steps` in all, was done,
    /// and whether those passes gave the same bits.
    fn placement(&self, observed: &PassOutput, steps: u32) -> Result<(Placement, Check), PassError> {
        let options = PassOptions { gradients: self.gradients, trace: true, ..PassOptions::default() };
        let first = bits(observed);
        let (mut further, mut unstable) = (Vec::new(), std::collections::BTreeSet::new());
        for _ in 1..steps {
            let output = run_pass(self.engine, self.program, self.feed, options)?;
            unstable.extend(differing(&first, &bits(&output)));
            further.push((output.input_devices, output.events));
        }
        let mut passes = vec![PassTrace { inputs: &observed.input_devices, events: &observed.events }];
        passes.extend(further.iter().map(|(inputs, events)| PassTrace { inputs, events }));
        let compared = first.len();
        let repeated = if further.is_empty() {
            Check::not_run("one pass was traced")
        } else if unstable.is_empty() {
            Check::Held { compared }
        } else {
            Check::Failed { compared, differing: unstable.into_iter().collect() }
        };
        Ok((trace::detect(&self.engine.info().device, &passes), repeated))
    }

    /// Compares the observed pass with the bare ones, bit by bit.
    ///
    /// If it equals the first, the target repeats itself *and* observation changes nothing:
    /// one comparison answers both. If not, a second bare pass tells which it is.
    fn check(
        &self,
        observed: &PassOutput,
        bare: &mut Vec<Bits>,
        timing: &mut Timing,
    ) -> Result<Checks, PassError> {
        let Some(first) = bare.first().cloned() else {
            let not_run = Check::not_run("no bare pass was asked for");
            return Ok(Checks { determinism: not_run.clone(), observer: not_run });
        };
        let observed = bits(observed);
        let seen = differing(&first, &observed);
        if !seen.is_empty() && bare.len() == 1 {
            bare.push(self.bare(timing)?);
        }
        let unstable: Vec<String> = {
            let mut names = Vec::new();
            for other in bare.iter().skip(1) {
                names.extend(
                    differing(&first, other).into_iter().filter(|n| !names.contains(n)).collect::<Vec<_>>(),
                );
            }
            names
        };
        let compared = first.len();
        let held = Check::Held { compared };
        Ok(if !unstable.is_empty() {
            Checks {
                determinism: Check::Failed { compared, differing: unstable },
                observer: Check::not_run("the target does not repeat itself bit for bit"),
            }
        } else if seen.is_empty() {
            Checks { determinism: held.clone(), observer: held }
        } else {
            Checks { determinism: held, observer: Check::Failed { compared, differing: seen } }
        })
    }
}

/// Hashes of what both a bare and an observed pass deliver.
fn bits(output: &PassOutput) -> Bits {
    let mut bits = Bits::new();
    let mut put = |kind: QuantityKind, subject: &str, tensor: Option<&HostTensor>| {
        bits.insert(kind.quantity(subject), tensor.map(content_hash));
    };
    if let Some(loss) = &output.loss {
        put(QuantityKind::Loss, "", Some(loss));
    }
    if let Some(logits) = &output.logits {
        put(QuantityKind::Logits, "", Some(logits));
    }
    for (kind, list) in [
        (QuantityKind::Gradient, &output.parameter_gradients),
        (QuantityKind::InputGradient, &output.input_gradients),
    ] {
        for (name, gradient) in list {
            let tensor = match gradient {
                Gradient::Value(tensor) => Some(tensor),
                Gradient::None => None,
            };
            put(kind, name, tensor);
        }
    }
    for (name, tensor) in &output.buffers {
        put(QuantityKind::Buffer, name, Some(tensor));
    }
    bits
}

/// Names under which two passes differ, or that only one has.
fn differing(a: &Bits, b: &Bits) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}

/// What a pass handed over, by quantity name.
pub(super) struct Delivered {
    pub tensors: BTreeMap<String, HostTensor>,
    none: HashSet<String>,
}

impl Delivered {
    pub(super) fn of(output: PassOutput) -> Self {
        let mut tensors = BTreeMap::new();
        let mut none = HashSet::new();
        tensors.extend(output.loss.map(|t| (QuantityKind::Loss.quantity(""), t)));
        tensors.extend(output.logits.map(|t| (QuantityKind::Logits.quantity(""), t)));
        for (kind, list) in
            [(QuantityKind::Activation, output.activations), (QuantityKind::Buffer, output.buffers)]
        {
            tensors.extend(list.into_iter().map(|(name, t)| (kind.quantity(&name), t)));
        }
        for (kind, list) in [
            (QuantityKind::Gradient, output.parameter_gradients),
            (QuantityKind::InputGradient, output.input_gradients),
            (QuantityKind::ActivationGradient, output.activation_gradients),
        ] {
            for (name, gradient) in list {
                match gradient {
                    Gradient::Value(tensor) => {
                        tensors.insert(kind.quantity(&name), tensor);
                    }
                    Gradient::None => {
                        none.insert(kind.quantity(&name));
                    }
                }
            }
        }
        Self { tensors, none }
    }

    /// Gives every quantity its state. What was skipped stays so, what was not delivered
    /// stays missing.
    fn settle(&self, rows: &mut [Quantity]) {
        for row in rows {
            if self.tensors.contains_key(&row.name) {
                row.state = State::Value;
            } else if self.none.contains(&row.name) {
                row.state = State::None;
            }
        }
    }

    /// Writes all tensors, those of wide elements first, so that in the file each begins at
    /// a multiple of its element size; drops each once it is written.
    fn write(self, writer: &mut Writer) -> Result<(), RunError> {
        let mut tensors: Vec<(String, HostTensor)> = self.tensors.into_iter().collect();
        tensors.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.dtype().size()));
        for (name, tensor) in tensors {
            writer.tensor(&name, &tensor)?;
        }
        Ok(())
    }
}

/// Progress and planted faults, between interpreter and engine.
struct Between<'a, T> {
    planted: Option<Planted<T>>,
    progress: &'a Progress<'a>,
    nodes: usize,
    stage: Cell<Stage>,
    told: Cell<usize>,
}

/// Messages of progress in one stage.
const STEPS: usize = 16;

impl<'a, T> Between<'a, T> {
    const fn new(planted: Option<Planted<T>>, progress: &'a Progress<'a>, nodes: usize) -> Self {
        Self { planted, progress, nodes, stage: Cell::new(Stage::Engine), told: Cell::new(0) }
    }

    /// The passes that follow belong to this stage.
    fn at(&self, stage: Stage) {
        self.stage.set(stage);
        self.told.set(usize::MAX);
    }
}

impl<E: Engine> Hook<E> for Between<'_, E::Tensor> {
    fn mark(&self, phase: Phase, node: Option<usize>) {
        let stage = match (self.stage.get(), phase) {
            (Stage::Forward, Phase::Backward) => Stage::Backward,
            (stage, _) => stage,
        };
        // Evaluation tells its own progress: it is many passes.
        if stage != Stage::Evaluate {
            let step = node.map_or(STEPS, |n| n * STEPS / self.nodes.max(1));
            if self.told.replace(step) != step {
                let share = if node.is_some() { step as f64 / STEPS as f64 } else { 0.0 };
                (self.progress)(stage, share);
            }
        }
        if let Some(planted) = &self.planted {
            Hook::<E>::mark(planted, phase, node);
        }
    }

    fn apply(
        &self,
        engine: &E,
        call: &Call<'_>,
        inputs: &[&E::Tensor],
    ) -> Result<Vec<E::Tensor>, EngineError> {
        match &self.planted {
            Some(planted) => planted.apply(engine, call, inputs),
            None => engine.apply(call, inputs),
        }
    }

    fn backward(
        &self,
        engine: &E,
        request: &BackwardRequest<'_, E::Tensor>,
    ) -> Result<Vec<Option<E::Tensor>>, EngineError> {
        match &self.planted {
            Some(planted) => planted.backward(engine, request),
            None => engine.backward(request),
        }
    }

    fn device_of(&self, engine: &E, tensor: &E::Tensor) -> String {
        match &self.planted {
            Some(planted) => planted.device_of(engine, tensor),
            None => engine.device_of(tensor),
        }
    }
}
