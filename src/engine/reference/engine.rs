//! [`ReferenceEngine`]: the [`Engine`] of f64 arrays.

use super::applied::{Applied, Cotangent, Fault, Output, Site};
use super::noise::{Noise, NoiseSpec, Stage};
use super::ops;
use super::tape::{self, Step, Variable};
use super::tensor::{Data, Tensor};
use crate::engine::{BackwardRequest, Call, Engine, EngineError, EngineInfo, Leaf, Support};
use crate::numerics::DType;
use crate::program::{Op, Value, infer};
use crate::tensor::HostTensor;
use crate::trace::Phase;

const NAME: &str = "reference";

/// Executes programs in f64 on the host, with or without simulated rounding.
#[derive(Clone, Debug, Default)]
pub struct ReferenceEngine {
    noise: Option<NoiseSpec>,
}

impl ReferenceEngine {
    /// The exact reference (as far as f64 goes).
    #[must_use]
    pub const fn new() -> Self {
        Self { noise: None }
    }

    /// One replica of a run with the rounding errors that `spec` predicts.
    #[must_use]
    pub const fn with_noise(spec: NoiseSpec) -> Self {
        Self { noise: Some(spec) }
    }

    fn evaluate(&self, call: &Call<'_>, inputs: &[&Tensor]) -> Result<Vec<Tensor>, Fault> {
        let inferred = infer(call.op, call.inputs).map_err(|e| e.reason)?;
        if !inferred.iter().eq(call.outputs.iter().copied()) {
            return Err(format!("the call expects {:?}, the operator gives {inferred:?}", call.outputs));
        }
        if inputs.len() != call.inputs.len() {
            return Err(format!("{} tensors were given for {} inputs", inputs.len(), call.inputs.len()));
        }
        for (tensor, value) in inputs.iter().zip(call.inputs) {
            if tensor.data.shape() != value.shape {
                return Err(format!(
                    "a tensor of shape {:?} was given for {:?}",
                    tensor.data.shape(),
                    value.shape
                ));
            }
        }
        let data: Vec<Data> = inputs.iter().map(|t| t.data.clone()).collect();
        let noise = self.noise.as_ref().map(Noise::new);
        let inner = noise.as_ref().map(|noise| noise.inner(call));
        let site = Site { outputs: call.outputs, terms: noise.is_some(), inner };
        let Applied { outputs, vjp, keeps_outputs } = ops::apply(call.op, &data, &site)?;
        let mut results: Vec<Tensor> = outputs
            .into_iter()
            .zip(call.outputs)
            .enumerate()
            .map(|(i, (output, value))| Self::finish(call, i, output, value, noise.as_ref()))
            .collect();
        let variables: Vec<_> = inputs.iter().map(|t| t.variable.clone()).collect();
        if let Some(vjp) = vjp.filter(|_| variables.iter().any(Option::is_some)) {
            let kept = results.iter().filter_map(|t| match &t.data {
                Data::Float(values) if keeps_outputs => Some(values.clone()),
                _ => None,
            });
            let made = tape::record(Step {
                node: call.node,
                vjp,
                inputs: variables,
                results: kept.collect(),
                outputs: results.len(),
                levels: noise.as_ref().map_or_else(Vec::new, |noise| noise.backward_levels(call)),
            });
            for (tensor, variable) in results.iter_mut().zip(made) {
                tensor.variable = tensor.dtype.is_float().then_some(variable);
            }
        }
        Ok(results)
    }

    /// Result `index` as a tensor, rounded if this run simulates rounding.
    fn finish(
        call: &Call<'_>,
        index: usize,
        output: Output,
        value: &Value,
        noise: Option<&Noise<'_>>,
    ) -> Tensor {
        let Output { data, terms } = output;
        match (data, noise) {
            (Data::Float(value), Some(noise)) => {
                let exact = Cotangent { value, terms };
                let level = noise.forward_level(call, index);
                let value = noise.perturb(exact, &level, call.node, Stage::Result(index));
                Tensor { data: Data::Float(value), dtype: DType::F64, variable: None }
            }
            (data @ Data::Float(_), None) => Tensor { data, dtype: DType::F64, variable: None },
            (data @ Data::Integer(_), _) => Tensor { data, dtype: value.dtype, variable: None },
        }
    }
}

fn failed(op: &str, message: String) -> EngineError {
    EngineError::Failed { engine: NAME.to_owned(), op: op.to_owned(), message }
}

impl Engine for ReferenceEngine {
    type Tensor = Tensor;

    fn info(&self) -> EngineInfo {
        EngineInfo {
            engine: NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: "cpu".to_owned(),
            device_name: None,
            emulated: false,
            deterministic: true,
            modes: Vec::new(),
        }
    }

    fn supports(&self, _op: &Op, _dtype: DType, _types: &[&Value], _phase: Phase) -> Support {
        Support::Native
    }

    fn upload(&self, host: &HostTensor, leaf: Leaf) -> Result<Tensor, EngineError> {
        let variable = (leaf == Leaf::Differentiable).then(Variable::leaf);
        Tensor::from_host(host, variable).map_err(|message| failed("upload", message))
    }

    fn download(&self, tensor: &Tensor) -> Result<HostTensor, EngineError> {
        tensor.to_host().map_err(|e| failed("download", e.to_string()))
    }

    fn apply(&self, call: &Call<'_>, inputs: &[&Tensor]) -> Result<Vec<Tensor>, EngineError> {
        self.evaluate(call, inputs).map_err(|message| failed(call.op.name(), message))
    }

    fn backward(&self, request: &BackwardRequest<'_, Tensor>) -> Result<Vec<Option<Tensor>>, EngineError> {
        let shape = request.loss.data.shape();
        if shape.iter().product::<usize>() != 1 || !request.loss.dtype.is_float() {
            let message = format!("the loss must be a floating-point scalar, it has shape {shape:?}");
            return Err(failed("backward", message));
        }
        let wrt: Vec<_> = request.wrt.iter().map(|t| t.variable.as_ref()).collect();
        let noise = self.noise.as_ref().map(Noise::new);
        let gradients = tape::backward(request.loss.variable.as_ref(), shape, &wrt, noise.as_ref());
        let tensor = |value| Tensor { data: Data::Float(value), dtype: DType::F64, variable: None };
        Ok(gradients.into_iter().map(|g| g.map(tensor)).collect())
    }

    fn device_of(&self, _tensor: &Tensor) -> String {
        "cpu".to_owned()
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        Ok(())
    }
}
