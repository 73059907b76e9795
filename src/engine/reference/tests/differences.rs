//! Every operator's gradients against central finite differences.

use super::{Engine, ReferenceEngine, Tensor, call, gradient, pass};
use crate::conformance::{Case, cases};
use crate::engine::{BackwardRequest, Call, EngineError, EngineInfo, Leaf, Support};
use crate::numerics::DType;
use crate::program::{Gelu, Op, OpKind, Value};
use crate::tensor::HostTensor;
use crate::trace::Phase;

/// Step of the differences: at most an eighth of the distance from any value of a case to
/// the kinks of its operator.
const STEP: f64 = 1.0 / 1024.0;

/// What differences can see. Fourth order: truncation is h⁴·f⁗′/30 ≈ 3e-14·f⁗′, rounding
/// about 1e-15·|loss|/h ≈ 1e-12·|loss|; losses here stay below 100, fifth derivatives
/// below 1e4.
const TOLERANCE: f64 = 1e-9;

/// Largest deviation of a gradient from the differences, relative to 1 + the largest
/// gradient; and how many gradient elements were compared.
fn deviation(engine: &impl Engine, case: &Case) -> (f64, usize) {
    let program = case.program_in(DType::F64).unwrap();
    let inputs = case.host_inputs_for(&program, 1).unwrap();
    let out = pass(engine, &program, &inputs);
    let (mut worst, mut compared) = (0.0_f64, 0);
    for (position, input) in case.inputs.iter().enumerate() {
        let found = gradient(&out, &input.name);
        if !input.differentiable || program.outputs.loss.is_none() {
            assert!(found.is_none(), "{}: {} has no gradient", case.name, input.name);
            continue;
        }
        let found = found.unwrap_or_else(|| panic!("{}: no gradient of {}", case.name, input.name));
        let values = inputs[position].to_f64();
        let scale = 1.0 + found.iter().fold(0.0_f64, |a, g| if g.abs() > a { g.abs() } else { a });
        for (element, gradient) in found.iter().enumerate() {
            let loss = |offset: f64| {
                let mut moved = values.clone();
                moved[element] += offset;
                let mut inputs = inputs.clone();
                inputs[position] = HostTensor::from_f64(DType::F64, input.shape.clone(), &moved).unwrap();
                pass(engine, &program, &inputs).loss.unwrap().to_f64()[0]
            };
            let (near, far) = (loss(STEP) - loss(-STEP), loss(2.0 * STEP) - loss(-2.0 * STEP));
            let expected = (8.0 * near - far) / (12.0 * STEP);
            let error = (gradient - expected).abs() / scale;
            // Not `<`: NaN must be seen.
            worst = if error <= worst { worst } else { error };
            compared += 1;
        }
    }
    (worst, compared)
}

#[test]
fn gradients_of_every_operator_agree_with_finite_differences() {
    let engine = ReferenceEngine::new();
    let mut wrong = Vec::new();
    let mut compared = std::collections::BTreeMap::new();
    for case in cases() {
        let (worst, elements) = deviation(&engine, &case);
        *compared.entry(case.op.kind()).or_insert(0) += elements;
        if !matches!(worst.partial_cmp(&TOLERANCE), Some(std::cmp::Ordering::Less)) {
            wrong.push(format!("{}: {worst:e}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for kind in OpKind::ALL.iter().filter(|kind| **kind != OpKind::Argmax) {
        assert!(compared.get(kind).is_some_and(|n| *n > 0), "no gradient of {kind:?} was compared");
    }
}

/// Another operator in place of one.
type Mutation = fn(&Op) -> Op;

/// The reference with the vector-Jacobian product of one operator replaced by another's.
struct WrongGradient {
    engine: ReferenceEngine,
    of: OpKind,
    wrong: Mutation,
}

impl Engine for WrongGradient {
    type Tensor = Tensor;

    fn info(&self) -> EngineInfo {
        self.engine.info()
    }

    fn supports(&self, op: &Op, dtype: DType, types: &[&Value], phase: Phase) -> Support {
        self.engine.supports(op, dtype, types, phase)
    }

    fn upload(&self, host: &HostTensor, leaf: Leaf) -> Result<Tensor, EngineError> {
        self.engine.upload(host, leaf)
    }

    fn download(&self, tensor: &Tensor) -> Result<HostTensor, EngineError> {
        self.engine.download(tensor)
    }

    fn apply(&self, call: &Call<'_>, inputs: &[&Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let right = self.engine.apply(call, inputs)?;
        if call.op.kind() != self.of {
            return Ok(right);
        }
        let wrong = super::call(&self.engine, &(self.wrong)(call.op), inputs, call.node)?;
        let pairs = right.into_iter().zip(wrong);
        Ok(pairs.map(|(right, wrong)| Tensor { variable: wrong.variable, ..right }).collect())
    }

    fn backward(&self, request: &BackwardRequest<'_, Tensor>) -> Result<Vec<Option<Tensor>>, EngineError> {
        self.engine.backward(request)
    }

    fn device_of(&self, tensor: &Tensor) -> String {
        self.engine.device_of(tensor)
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

#[test]
fn a_wrong_gradient_is_caught() {
    let mutants: [(OpKind, Mutation); 6] = [
        (OpKind::Gelu, |_| Op::Gelu { approximate: Gelu::Tanh }),
        (OpKind::LayerNorm, |op| match op {
            Op::LayerNorm { normalized_shape, .. } => {
                Op::LayerNorm { normalized_shape: normalized_shape.clone(), eps: 2e-5 }
            }
            other => other.clone(),
        }),
        (OpKind::ScaledDotProductAttention, |_| Op::ScaledDotProductAttention {
            is_causal: false,
            scale: Some(0.5 + 1e-6),
        }),
        (OpKind::MulScalar, |_| Op::MulScalar { value: -0.750_001 }),
        (OpKind::Relu, |_| Op::LeakyRelu { negative_slope: 1e-6 }),
        (OpKind::Cumsum, |_| Op::Cumsum { dim: 0 }),
    ];
    for (of, wrong) in mutants {
        let engine = WrongGradient { engine: ReferenceEngine::new(), of, wrong };
        let case = cases().into_iter().find(|case| case.op.kind() == of).unwrap();
        let (right, _) = deviation(&engine.engine, &case);
        let (worst, _) = deviation(&engine, &case);
        assert!(right < TOLERANCE && worst > 10.0 * TOLERANCE, "{}: {right:e} {worst:e}", case.name);
    }
}

#[test]
fn a_value_used_twice_gets_both_cotangents() {
    let engine = ReferenceEngine::new();
    let x = engine.upload(&super::host(&[2], &[3.0, -1.0]), Leaf::Differentiable).unwrap();
    let square = call(&engine, &Op::Mul {}, &[&x, &x], 0).unwrap().remove(0);
    let cube = call(&engine, &Op::Mul {}, &[&square, &x], 1).unwrap().remove(0);
    let loss = call(&engine, &Op::Sum { dims: vec![], keepdim: false }, &[&cube], 2).unwrap().remove(0);
    let found = engine.backward(&BackwardRequest { loss: &loss, wrt: &[&x, &square, &loss] }).unwrap();
    let found: Vec<Vec<f64>> =
        found.into_iter().map(|g| engine.download(&g.unwrap()).unwrap().to_f64()).collect();
    assert_eq!(found, [vec![27.0, 3.0], vec![3.0, -1.0], vec![1.0]]);
}

#[test]
fn a_leaf_that_the_loss_does_not_depend_on_has_no_gradient() {
    let engine = ReferenceEngine::new();
    let x = engine.upload(&super::host(&[1], &[3.0]), Leaf::Differentiable).unwrap();
    let other = engine.upload(&super::host(&[1], &[3.0]), Leaf::Differentiable).unwrap();
    let loss = call(&engine, &Op::Neg {}, &[&x], 0).unwrap().remove(0);
    let found = engine.backward(&BackwardRequest { loss: &loss, wrt: &[&other, &x] }).unwrap();
    assert!(found[0].is_none() && found[1].is_some());
}

#[test]
fn a_deep_program_is_freed_without_recursion() {
    let engine = ReferenceEngine::new();
    let mut x = engine.upload(&super::host(&[1], &[1.0]), Leaf::Differentiable).unwrap();
    for node in 0..100_000 {
        x = call(&engine, &Op::Neg {}, &[&x], node).unwrap().remove(0);
    }
    drop(x);
}
