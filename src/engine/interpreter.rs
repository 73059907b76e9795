//! The one interpreter: walks a program on any engine.
//!
//! Intermediates are dropped after their last use. Captured values are kept on the device
//! and leave it once, after the pass, so that observing does not change what is observed.

use std::collections::HashMap;
use std::time::Instant;

use super::{BackwardRequest, Call, Engine, EngineError, Leaf};
use crate::numerics::DType;
use crate::program::{InputKind, Program, ValueId};
use crate::tensor::HostTensor;
use crate::trace::{OperatorEvent, Phase, TensorMeta};

/// What a pass is asked to do.
#[expect(clippy::struct_excessive_bools, reason = "independent switches, named at each use")]
#[derive(Clone, Copy, Debug, Default)]
pub struct PassOptions {
    /// Keep module outputs.
    pub capture: bool,
    /// Run backward and deliver gradients.
    pub gradients: bool,
    /// Deliver the gradients of captured module outputs too.
    pub activation_gradients: bool,
    /// Write operator events.
    pub trace: bool,
}

/// A gradient as an engine delivered it. Zero is a value.
#[derive(Clone, Debug)]
pub enum Gradient {
    /// The engine has none for this leaf.
    None,
    /// Its value.
    Value(HostTensor),
}

/// What a pass produced.
#[derive(Debug, Default)]
pub struct PassOutput {
    /// The loss, if the program has one.
    pub loss: Option<HostTensor>,
    /// The logits, if the program has them.
    pub logits: Option<HostTensor>,
    /// Module outputs in program order.
    pub activations: Vec<(String, HostTensor)>,
    /// Gradients of parameters, in program order.
    pub parameter_gradients: Vec<(String, Gradient)>,
    /// Gradients of float batch inputs.
    pub input_gradients: Vec<(String, Gradient)>,
    /// Gradients of module outputs.
    pub activation_gradients: Vec<(String, Gradient)>,
    /// Updated buffers.
    pub buffers: Vec<(String, HostTensor)>,
    /// Devices that tensors said they live on: where parameters, intermediates, gradients were.
    pub devices: Vec<String>,
    /// Device of each program input when the pass began.
    pub input_devices: Vec<(String, String)>,
    /// Operator events (if asked for).
    pub events: Vec<OperatorEvent>,
    /// Seconds from the first operator to the loss, synchronised.
    pub forward_s: f64,
    /// Seconds of the backward pass, synchronised.
    pub backward_s: f64,
}

/// A pass did not finish.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The engine failed at a node.
    #[error("node {node}: {source}")]
    Node {
        /// The node.
        node: String,
        /// What the engine said.
        source: EngineError,
    },
    /// The engine failed outside a node.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No tensor was given for a program input.
    #[error("no tensor was given for program input `{0}`")]
    MissingInput(String),
    /// A tensor does not fit its program input.
    #[error(
        "program input `{name}` is {expected_shape:?} {expected}, the tensor given is {found_shape:?} {found}"
    )]
    Mismatch {
        /// Name of the input.
        name: String,
        /// Dtype the program wants.
        expected: DType,
        /// Shape the program wants.
        expected_shape: Vec<usize>,
        /// Dtype given.
        found: DType,
        /// Shape given.
        found_shape: Vec<usize>,
    },
}

/// Program inputs by name, in the dtypes of the program.
pub type Feed<'a> = dyn Fn(&str) -> Option<HostTensor> + 'a;

/// Runs `program` once on `engine`.
///
/// # Errors
/// If an input is missing or misshaped, or the engine fails; the error names the node.
pub fn run_pass<E: Engine>(
    engine: &E,
    program: &Program,
    feed: &Feed<'_>,
    options: PassOptions,
) -> Result<PassOutput, PassError> {
    Pass::start(engine, program, feed, options)?.run()
}

struct Pass<'a, E: Engine> {
    engine: &'a E,
    program: &'a Program,
    options: PassOptions,
    live: Vec<Option<E::Tensor>>,
    leaves: Vec<Option<E::Tensor>>,
    watched: HashMap<ValueId, E::Tensor>,
    kept: HashMap<ValueId, E::Tensor>,
    began: Instant,
    out: PassOutput,
}

impl<'a, E: Engine> Pass<'a, E> {
    fn start(
        engine: &'a E,
        program: &'a Program,
        feed: &Feed<'_>,
        options: PassOptions,
    ) -> Result<Self, PassError> {
        let mut live = vec![None; program.values.len()];
        let mut leaves = vec![None; program.inputs.len()];
        for (slot, input) in leaves.iter_mut().zip(&program.inputs) {
            let host = feed(&input.name).ok_or_else(|| PassError::MissingInput(input.name.clone()))?;
            let wanted = program.value(input.value);
            if host.shape() != wanted.shape || host.dtype() != wanted.dtype {
                return Err(PassError::Mismatch {
                    name: input.name.clone(),
                    expected: wanted.dtype,
                    expected_shape: wanted.shape.clone(),
                    found: host.dtype(),
                    found_shape: host.shape().to_vec(),
                });
            }
            let differentiable = options.gradients
                && wanted.dtype.is_float()
                && matches!(input.kind, InputKind::Parameter | InputKind::Batch);
            let tensor =
                engine.upload(&host, if differentiable { Leaf::Differentiable } else { Leaf::Constant })?;
            live[input.value.index()] = Some(tensor.clone());
            if differentiable {
                *slot = Some(tensor);
            }
        }
        engine.synchronize()?;
        let out = PassOutput::default();
        Ok(Self {
            engine,
            program,
            options,
            live,
            leaves,
            watched: HashMap::new(),
            kept: HashMap::new(),
            began: Instant::now(),
            out,
        })
    }

    fn run(mut self) -> Result<PassOutput, PassError> {
        for input in &self.program.inputs {
            if let Some(tensor) = &self.live[input.value.index()] {
                let device = self.engine.device_of(tensor);
                note_device(&mut self.out.devices, device.clone());
                self.out.input_devices.push((input.name.clone(), device));
            }
        }
        if self.options.trace {
            self.engine.start_trace()?;
        }
        self.began = Instant::now();
        self.forward()?;
        self.engine.synchronize()?;
        self.out.forward_s = self.began.elapsed().as_secs_f64();
        if self.options.gradients {
            self.backward()?;
        } else {
            self.take_events();
        }
        self.collect()
    }

    fn keep(&self) -> Vec<bool> {
        let mut keep = vec![false; self.program.values.len()];
        let outputs = &self.program.outputs;
        let always =
            outputs.loss.into_iter().chain(outputs.logits).chain(outputs.buffers.iter().map(|b| b.value));
        for id in always {
            keep[id.index()] = true;
        }
        if self.options.capture || self.options.activation_gradients {
            for capture in &self.program.captures {
                keep[capture.value.index()] = true;
            }
        }
        keep
    }

    fn forward(&mut self) -> Result<(), PassError> {
        let program = self.program;
        let (last_uses, keep) = (program.last_uses(), self.keep());
        let watch: Vec<bool> = {
            let mut watch = vec![false; program.values.len()];
            if self.options.gradients && self.options.activation_gradients {
                for capture in &program.captures {
                    watch[capture.value.index()] = program.value(capture.value).dtype.is_float();
                }
            }
            watch
        };
        for (index, node) in program.nodes.iter().enumerate() {
            let inputs: Vec<&E::Tensor> =
                node.inputs.iter().filter_map(|id| self.live[id.index()].as_ref()).collect();
            debug_assert_eq!(inputs.len(), node.inputs.len(), "validated programs define before use");
            let input_types: Vec<_> = node.inputs.iter().map(|id| program.value(*id)).collect();
            let output_types: Vec<_> = node.outputs.iter().map(|id| program.value(*id)).collect();
            let call = Call {
                op: &node.op,
                inputs: &input_types,
                outputs: &output_types,
                node: index,
                path: &node.path,
            };
            self.engine.mark(Phase::Forward, Some(index));
            let start = self.began.elapsed();
            let results = self
                .engine
                .apply(&call, &inputs)
                .map_err(|source| PassError::Node { node: program.describe_node(index), source })?;
            if self.options.trace && !self.engine.observes_itself() {
                let event = self.event(&call, &inputs, &results, start.as_nanos());
                self.out.events.push(event);
            }
            for (id, tensor) in node.outputs.iter().zip(results) {
                note_device(&mut self.out.devices, self.engine.device_of(&tensor));
                let tensor = if watch[id.index()] {
                    let (tensor, handle) = self.engine.watch(&tensor)?;
                    self.watched.insert(*id, handle);
                    tensor
                } else {
                    tensor
                };
                if keep[id.index()] {
                    self.kept.insert(*id, tensor.clone());
                }
                if last_uses[id.index()].is_some() {
                    self.live[id.index()] = Some(tensor);
                }
            }
            for id in &node.inputs {
                if last_uses[id.index()] == Some(index) {
                    self.live[id.index()] = None;
                }
            }
        }
        Ok(())
    }

    fn event(
        &self,
        call: &Call<'_>,
        inputs: &[&E::Tensor],
        results: &[E::Tensor],
        start_ns: u128,
    ) -> OperatorEvent {
        let meta = |value: &crate::program::Value, tensor: &E::Tensor| TensorMeta {
            shape: value.shape.clone(),
            dtype: value.dtype.name().to_owned(),
            device: self.engine.device_of(tensor),
            number: false,
        };
        let nanos = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        OperatorEvent {
            seq: self.out.events.len() as u64,
            phase: Phase::Forward,
            op: call.op.name().to_owned(),
            node: Some(call.node),
            path: call.path.to_owned(),
            parent: None,
            depth: 0,
            thread: 0,
            inputs: call.inputs.iter().zip(inputs).map(|(v, t)| meta(v, t)).collect(),
            outputs: call.outputs.iter().zip(results).map(|(v, t)| meta(v, t)).collect(),
            start_ns: nanos(start_ns),
            duration_ns: nanos(self.began.elapsed().as_nanos().saturating_sub(start_ns)),
            ..OperatorEvent::default()
        }
    }

    fn backward(&mut self) -> Result<(), PassError> {
        let Some(loss) = self.program.outputs.loss.and_then(|id| self.kept.get(&id)).cloned() else {
            self.take_events();
            return Ok(());
        };
        let program = self.program;
        let mut names: Vec<(usize, &str)> = Vec::new();
        let mut wrt: Vec<&E::Tensor> = Vec::new();
        for (input, leaf) in program.inputs.iter().zip(&self.leaves) {
            if let Some(leaf) = leaf {
                names.push((usize::from(input.kind == InputKind::Batch), &input.name));
                wrt.push(leaf);
            }
        }
        for capture in &program.captures {
            if let Some(handle) = self.watched.get(&capture.value) {
                names.push((2, &capture.name));
                wrt.push(handle);
            }
        }
        self.engine.mark(Phase::Backward, None);
        let start = Instant::now();
        let gradients = self.engine.backward(&BackwardRequest { loss: &loss, wrt: &wrt })?;
        self.engine.synchronize()?;
        self.out.backward_s = start.elapsed().as_secs_f64();
        self.take_events();
        for ((list, name), gradient) in names.into_iter().zip(gradients) {
            let gradient = match gradient {
                None => Gradient::None,
                Some(tensor) => {
                    note_device(&mut self.out.devices, self.engine.device_of(&tensor));
                    Gradient::Value(self.engine.download(&tensor)?)
                }
            };
            let lists = [
                &mut self.out.parameter_gradients,
                &mut self.out.input_gradients,
                &mut self.out.activation_gradients,
            ];
            if let Some(list) = lists.into_iter().nth(list) {
                list.push((name.to_owned(), gradient));
            }
        }
        Ok(())
    }

    /// Events of an engine that observes itself, before results leave the device; such an
    /// engine knows the node of an event, the program knows the module path of the node.
    fn take_events(&mut self) {
        if !self.options.trace || !self.engine.observes_itself() {
            return;
        }
        self.out.events = self.engine.drain_events();
        for event in &mut self.out.events {
            if let Some(node) = event.node.and_then(|index| self.program.nodes.get(index)) {
                event.path.clone_from(&node.path);
            }
        }
    }

    fn collect(mut self) -> Result<PassOutput, PassError> {
        let fetch = |id: ValueId| self.kept.get(&id).map(|t| self.engine.download(t)).transpose();
        let outputs = &self.program.outputs;
        self.out.loss = outputs.loss.map(fetch).transpose()?.flatten();
        self.out.logits = outputs.logits.map(fetch).transpose()?.flatten();
        if self.options.capture {
            for capture in &self.program.captures {
                if let Some(tensor) = fetch(capture.value)? {
                    self.out.activations.push((capture.name.clone(), tensor));
                }
            }
        }
        for buffer in &outputs.buffers {
            if let Some(tensor) = fetch(buffer.value)? {
                self.out.buffers.push((buffer.name.clone(), tensor));
            }
        }
        Ok(self.out)
    }
}

fn note_device(devices: &mut Vec<String>, device: String) {
    if !devices.contains(&device) {
        devices.push(device);
    }
}
