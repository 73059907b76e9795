//! One case, or one operator, on any engine.

use std::collections::BTreeMap;

use crate::conformance::Case;
use crate::engine::candle::CandleEngine;
use crate::engine::interpreter::{Gradient, PassError, PassOptions, PassOutput, run_pass};
use crate::engine::{BackwardRequest, Call, DeviceSpec, Engine, EngineError, Leaf};
use crate::numerics::DType;
use crate::program::{Op, Program, Value, infer};
use crate::tensor::HostTensor;

pub(super) fn cpu() -> CandleEngine {
    CandleEngine::new(&DeviceSpec::CPU).unwrap()
}

pub(super) fn host(dtype: DType, shape: &[usize], values: &[f64]) -> HostTensor {
    HostTensor::from_f64(dtype, shape.to_vec(), values).unwrap()
}

/// A case in one dtype, with its inputs by name.
pub(super) struct Prepared {
    pub program: Program,
    pub inputs: BTreeMap<String, HostTensor>,
}

pub(super) fn prepare(case: &Case, dtype: DType) -> Prepared {
    let program = case.program_in(dtype).unwrap();
    let tensors = case.host_inputs_for(&program, 3).unwrap();
    let inputs = program.inputs.iter().zip(tensors).map(|(input, t)| (input.name.clone(), t)).collect();
    Prepared { program, inputs }
}

impl Prepared {
    pub fn pass<E: Engine>(&self, engine: &E, gradients: bool) -> Result<PassOutput, PassError> {
        let options = PassOptions { capture: true, gradients, ..PassOptions::default() };
        run_pass(engine, &self.program, &|name| self.inputs.get(name).cloned(), options)
    }
}

/// Gradients by name; `None` where the engine has none.
pub(super) fn gradients(output: &PassOutput) -> BTreeMap<String, Option<HostTensor>> {
    let all = output.parameter_gradients.iter().chain(&output.input_gradients);
    all.map(|(name, gradient)| match gradient {
        Gradient::None => (name.clone(), None),
        Gradient::Value(value) => (name.clone(), Some(value.clone())),
    })
    .collect()
}

/// One operator, outside a program: its results and the gradients of its float inputs for
/// an incoming gradient of ones.
pub(super) fn apply(
    engine: &CandleEngine,
    op: &Op,
    inputs: &[HostTensor],
) -> Result<(Vec<HostTensor>, Vec<Option<HostTensor>>), EngineError> {
    let values: Vec<Value> =
        inputs.iter().map(|t| Value { shape: t.shape().to_vec(), dtype: t.dtype() }).collect();
    let values: Vec<&Value> = values.iter().collect();
    let outputs = infer(op, &values).unwrap();
    let outputs: Vec<&Value> = outputs.iter().collect();
    let tensors: Vec<_> = inputs
        .iter()
        .map(|t| {
            let leaf = if t.dtype().is_float() { Leaf::Differentiable } else { Leaf::Constant };
            engine.upload(t, leaf)
        })
        .collect::<Result<_, _>>()?;
    let wrt: Vec<_> = tensors.iter().collect();
    let results = engine.apply(&Call { op, inputs: &values, outputs: &outputs, node: 0, path: "" }, &wrt)?;
    let loss = results[0].sum_all().unwrap();
    let gradients = engine.backward(&BackwardRequest { loss: &loss, wrt: &wrt })?;
    let results = results.iter().map(|t| engine.download(t)).collect::<Result<_, _>>()?;
    let gradients = gradients
        .iter()
        .map(|g| g.as_ref().map(|g| engine.download(g)).transpose())
        .collect::<Result<_, _>>()?;
    Ok((results, gradients))
}

/// Results of one operator without gradients.
pub(super) fn forward(
    engine: &CandleEngine,
    op: &Op,
    inputs: &[HostTensor],
) -> Result<Vec<HostTensor>, EngineError> {
    let values: Vec<Value> =
        inputs.iter().map(|t| Value { shape: t.shape().to_vec(), dtype: t.dtype() }).collect();
    let values: Vec<&Value> = values.iter().collect();
    let outputs = infer(op, &values).unwrap();
    let outputs: Vec<&Value> = outputs.iter().collect();
    let tensors: Vec<_> =
        inputs.iter().map(|t| engine.upload(t, Leaf::Constant)).collect::<Result<_, _>>()?;
    let tensors: Vec<_> = tensors.iter().collect();
    let results =
        engine.apply(&Call { op, inputs: &values, outputs: &outputs, node: 0, path: "" }, &tensors)?;
    results.iter().map(|t| engine.download(t)).collect()
}
