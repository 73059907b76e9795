//! A correct engine in every dtype: the reference, whose results and gradients are rounded
//! once when they are fetched. Faults are planted in it.

use std::cell::RefCell;

use crate::engine::reference::{ReferenceEngine, Tensor};
use crate::engine::{BackwardRequest, Call, Engine, EngineError, EngineInfo, Leaf, Support};
use crate::numerics::DType;
use crate::program::{Op, OpKind, Value};
use crate::tensor::HostTensor;
use crate::trace::Phase;

/// A reference tensor that knows its dtype and how it was made.
#[derive(Clone)]
pub(super) struct Rounded {
    pub tensor: Tensor,
    pub dtype: DType,
    /// Operator that made it; `None`: uploaded.
    pub from: Option<OpKind>,
}

/// What a fault sees of a call.
pub(super) struct Seen<'a> {
    pub op: &'a Op,
    pub inputs: &'a [&'a Rounded],
    /// Calls of this operator since the engine was made.
    pub calls: usize,
    pub dtype: DType,
}

/// Changes results of a call: host values in, host values out.
pub(super) type Forward = fn(&Seen<'_>, &mut Vec<f64>);

/// Changes gradients: operators of the pass, values; `false`: no gradient at all.
pub(super) type Backward = fn(&[OpKind], &mut Vec<f64>) -> bool;

/// The engine, with the faults that are planted.
#[derive(Default)]
pub(super) struct Simulated {
    pub inner: ReferenceEngine,
    pub forward: Option<Forward>,
    pub backward: Option<Backward>,
    /// Operators that it declares not to have.
    pub lacks: Vec<OpKind>,
    /// Operators that fail although they are declared.
    pub refuses: Vec<OpKind>,
    pub history: RefCell<Vec<OpKind>>,
    pub calls: RefCell<Vec<OpKind>>,
    pub finished: RefCell<bool>,
}

impl Engine for Simulated {
    type Tensor = Rounded;

    fn info(&self) -> EngineInfo {
        self.inner.info()
    }

    fn supports(&self, op: &Op, _: DType, _: &[&Value], _: Phase) -> Support {
        if self.lacks.contains(&op.kind()) {
            return Support::Unsupported("not written yet".to_owned());
        }
        Support::Native
    }

    fn upload(&self, host: &HostTensor, leaf: Leaf) -> Result<Rounded, EngineError> {
        if self.finished.replace(false) {
            self.history.borrow_mut().clear();
        }
        Ok(Rounded { tensor: self.inner.upload(host, leaf)?, dtype: host.dtype(), from: None })
    }

    fn download(&self, tensor: &Rounded) -> Result<HostTensor, EngineError> {
        self.finished.replace(true);
        Ok(self.inner.download(&tensor.tensor)?.cast(tensor.dtype))
    }

    fn apply(&self, call: &Call<'_>, inputs: &[&Rounded]) -> Result<Vec<Rounded>, EngineError> {
        let kind = call.op.kind();
        if self.refuses.contains(&kind) {
            let (engine, op) = ("simulated".to_owned(), call.op.name().to_owned());
            return Err(EngineError::Failed { engine, op, message: "not today".to_owned() });
        }
        self.history.borrow_mut().push(kind);
        self.calls.borrow_mut().push(kind);
        let tensors: Vec<&Tensor> = inputs.iter().map(|t| &t.tensor).collect();
        let results = self.inner.apply(call, &tensors)?;
        let calls = self.calls.borrow().iter().filter(|k| **k == kind).count();
        let round = |(tensor, value): (Tensor, &&Value)| {
            let mut rounded = Rounded { tensor, dtype: value.dtype, from: Some(kind) };
            let Some(fault) = self.forward else { return Ok(rounded) };
            let seen = Seen { op: call.op, inputs, calls, dtype: value.dtype };
            let host = self.inner.download(&rounded.tensor)?;
            let before = host.to_f64();
            let mut after = before.clone();
            fault(&seen, &mut after);
            if before.iter().zip(&after).all(|(a, b)| a.to_bits() == b.to_bits()) {
                return Ok(rounded);
            }
            let shape = host.shape().to_vec();
            let delta: Vec<f64> = before.iter().zip(&after).map(|(a, b)| b - a).collect();
            if delta.iter().all(|d| d.is_finite()) && host.dtype().is_float() {
                // Added, so that the gradient survives.
                let delta = HostTensor::from_f64(DType::F64, shape.clone(), &delta).unwrap();
                let delta = self.inner.upload(&delta, Leaf::Constant)?;
                let value = Value { shape, dtype: DType::F64 };
                let add = Call {
                    op: &Op::Add {},
                    inputs: &[&value, &value],
                    outputs: &[&value],
                    node: call.node,
                    path: "",
                };
                rounded.tensor = self.inner.apply(&add, &[&rounded.tensor, &delta])?.remove(0);
            } else {
                let host = HostTensor::from_f64(host.dtype(), shape, &after).unwrap();
                rounded.tensor = self.inner.upload(&host, Leaf::Constant)?;
            }
            Ok(rounded)
        };
        results.into_iter().zip(call.outputs).map(round).collect()
    }

    fn backward(&self, request: &BackwardRequest<'_, Rounded>) -> Result<Vec<Option<Rounded>>, EngineError> {
        let wrt: Vec<&Tensor> = request.wrt.iter().map(|t| &t.tensor).collect();
        let found = self.inner.backward(&BackwardRequest { loss: &request.loss.tensor, wrt: &wrt })?;
        let finish = |(gradient, leaf): (Option<Tensor>, &&Rounded)| {
            let Some(mut tensor) = gradient else { return Ok(None) };
            if let Some(fault) = self.backward {
                let host = self.inner.download(&tensor)?;
                let mut values = host.to_f64();
                if !fault(&self.history.borrow(), &mut values) {
                    return Ok(None);
                }
                let host = HostTensor::from_f64(host.dtype(), host.shape().to_vec(), &values).unwrap();
                tensor = self.inner.upload(&host, Leaf::Constant)?;
            }
            Ok(Some(Rounded { tensor, dtype: leaf.dtype, from: None }))
        };
        found.into_iter().zip(request.wrt).map(finish).collect()
    }

    fn device_of(&self, _: &Rounded) -> String {
        "cpu".to_owned()
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

impl Simulated {
    /// Values of an argument of a call.
    pub fn values(tensor: &Rounded) -> Vec<f64> {
        ReferenceEngine::new().download(&tensor.tensor).unwrap().to_f64()
    }
}
