//! Tests of the reference itself: gradients against differences, known values, noise.

mod differences;
mod golden;
mod noise;
mod semantics;

use super::{ReferenceEngine, Tensor};
use crate::engine::interpreter::{Gradient, PassOptions, PassOutput, run_pass};
use crate::engine::{Call, Engine, Leaf};
use crate::numerics::DType;
use crate::program::{Op, Program, Value, infer};
use crate::tensor::HostTensor;

/// One pass with gradients and captures; inputs in the order of the program.
fn pass(engine: &impl Engine, program: &Program, inputs: &[HostTensor]) -> PassOutput {
    let feed = |name: &str| {
        let position = program.inputs.iter().position(|input| input.name == name)?;
        inputs.get(position).cloned()
    };
    let options = PassOptions { capture: true, gradients: true, activation_gradients: false, trace: false };
    run_pass(engine, program, &feed, options).unwrap_or_else(|e| panic!("{}: {e}", program.name))
}

/// Gradient of a named input, if the engine has one.
fn gradient(out: &PassOutput, name: &str) -> Option<Vec<f64>> {
    let all = out.parameter_gradients.iter().chain(&out.input_gradients);
    match all.into_iter().find(|(n, _)| n == name) {
        Some((_, Gradient::Value(values))) => Some(values.to_f64()),
        _ => None,
    }
}

fn host(shape: &[usize], values: &[f64]) -> HostTensor {
    HostTensor::from_f64(DType::F64, shape.to_vec(), values).unwrap()
}

/// Results, and the gradient of each input that has one.
type Outcome = (Vec<HostTensor>, Vec<Option<Vec<f64>>>);

/// Applies one operator to f64 (or given) tensors and differentiates the sum of the first
/// result: results, and gradients of the inputs.
fn apply(op: &Op, inputs: &[HostTensor]) -> Outcome {
    apply_with(&ReferenceEngine::new(), op, inputs).unwrap()
}

fn apply_with(
    engine: &ReferenceEngine,
    op: &Op,
    inputs: &[HostTensor],
) -> Result<Outcome, crate::engine::EngineError> {
    let leaves: Vec<Tensor> = inputs
        .iter()
        .map(|host| {
            let leaf = if host.dtype().is_float() { Leaf::Differentiable } else { Leaf::Constant };
            engine.upload(host, leaf)
        })
        .collect::<Result<_, _>>()?;
    let results = call(engine, op, &leaves.iter().collect::<Vec<_>>(), 0)?;
    let sum = Op::Sum { dims: vec![], keepdim: false };
    let gradients = if results[0].dtype.is_float() {
        let loss = call(engine, &sum, &[&results[0]], 1)?.remove(0);
        let wrt: Vec<&Tensor> = leaves.iter().collect();
        let found = engine.backward(&crate::engine::BackwardRequest { loss: &loss, wrt: &wrt })?;
        found
            .into_iter()
            .map(|g| g.map(|g| engine.download(&g).map(|g| g.to_f64())).transpose())
            .collect::<Result<_, _>>()?
    } else {
        vec![None; leaves.len()]
    };
    let results = results.iter().map(|t| engine.download(t)).collect::<Result<_, _>>()?;
    Ok((results, gradients))
}

/// One operator application on tensors.
fn call(
    engine: &impl Engine<Tensor = Tensor>,
    op: &Op,
    inputs: &[&Tensor],
    node: usize,
) -> Result<Vec<Tensor>, crate::engine::EngineError> {
    let types: Vec<Value> =
        inputs.iter().map(|t| Value { shape: t.data.shape().to_vec(), dtype: t.dtype }).collect();
    let types: Vec<&Value> = types.iter().collect();
    let outputs = infer(op, &types).unwrap();
    let outputs: Vec<&Value> = outputs.iter().collect();
    engine.apply(&Call { op, inputs: &types, outputs: &outputs, node, path: "" }, inputs)
}
