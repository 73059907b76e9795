//! One operator on one engine, forward and backward, from host tensors.

use candle_core::Tensor;

use crate::engine::candle::CandleEngine;
use crate::engine::{BackwardRequest, Call, DeviceSpec, Engine, EngineError, Leaf};
use crate::numerics::DType;
use crate::program::{Op, Value, infer};
use crate::tensor::HostTensor;

pub(super) fn cpu() -> CandleEngine {
    CandleEngine::new(&DeviceSpec::CPU).unwrap()
}

pub(super) fn host(dtype: DType, shape: &[usize], values: &[f64]) -> HostTensor {
    HostTensor::from_f64(dtype, shape.to_vec(), values).unwrap()
}

pub(super) fn types(tensors: &[HostTensor]) -> Vec<Value> {
    tensors.iter().map(|t| Value { shape: t.shape().to_vec(), dtype: t.dtype() }).collect()
}

fn call(
    engine: &CandleEngine,
    op: &Op,
    tensors: &[&Tensor],
    values: &[Value],
) -> Result<Vec<Tensor>, EngineError> {
    let inputs: Vec<&Value> = values.iter().collect();
    let outputs = infer(op, &inputs).unwrap();
    let outputs: Vec<&Value> = outputs.iter().collect();
    let call = Call { op, inputs: &inputs, outputs: &outputs, node: 0, path: "" };
    let results = engine.apply(&call, tensors)?;
    assert_eq!(results.len(), outputs.len(), "{op:?}");
    for (tensor, value) in results.iter().zip(&outputs) {
        assert_eq!(tensor.dims(), value.shape, "{op:?}");
        assert_eq!(engine.download(tensor).unwrap().dtype(), value.dtype, "{op:?}");
    }
    Ok(results)
}

/// Results without gradients.
pub(super) fn forward(
    engine: &CandleEngine,
    op: &Op,
    inputs: &[HostTensor],
) -> Result<Vec<HostTensor>, EngineError> {
    let tensors: Vec<_> =
        inputs.iter().map(|t| engine.upload(t, Leaf::Constant)).collect::<Result<_, _>>()?;
    let results = call(engine, op, &tensors.iter().collect::<Vec<_>>(), &types(inputs))?;
    results.iter().map(|t| engine.download(t)).collect()
}

/// Results on the training path, and the gradients of the float inputs for the incoming
/// gradient `g` of the first result (`None` for integer inputs too).
pub(super) fn backward(
    engine: &CandleEngine,
    op: &Op,
    inputs: &[HostTensor],
    g: &HostTensor,
) -> Result<(Vec<HostTensor>, Vec<Option<HostTensor>>), EngineError> {
    let leaf = |t: &HostTensor| if t.dtype().is_float() { Leaf::Differentiable } else { Leaf::Constant };
    let tensors: Vec<_> = inputs.iter().map(|t| engine.upload(t, leaf(t))).collect::<Result<_, _>>()?;
    let results = call(engine, op, &tensors.iter().collect::<Vec<_>>(), &types(inputs))?;
    let g = engine.upload(g, Leaf::Constant)?;
    let product = results[0].mul(&g).unwrap();
    let loss = product.sum_all().unwrap();
    let wrt: Vec<&Tensor> = tensors.iter().collect();
    let gradients = engine.backward(&BackwardRequest { loss: &loss, wrt: &wrt })?;
    let down = |t: &Tensor| engine.download(t);
    Ok((
        results.iter().map(down).collect::<Result<_, _>>()?,
        gradients.iter().map(|g| g.as_ref().map(down).transpose()).collect::<Result<_, _>>()?,
    ))
}
