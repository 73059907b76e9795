//! libtorch and the reference on every case: two implementations that know nothing of each
//! other, so an agreement at rounding level speaks for both.

use crate::conformance::{Case, cases};
use crate::engine::interpreter::{Gradient, PassOptions, PassOutput, run_pass};
use crate::engine::reference::ReferenceEngine;
use crate::engine::torch::TorchEngine;
use crate::engine::{DeviceSpec, Engine};
use crate::numerics::{DType, ErrorModel, FloatFormat, Role};
use crate::program::{Op, Program};
use crate::tensor::HostTensor;

use super::process::in_own_process;

/// Results and gradients under their names; `None`: the engine has no gradient.
fn quantities<E: Engine>(engine: &E, case: &Case, program: &Program) -> Vec<(String, Option<HostTensor>)> {
    let inputs = case.host_inputs_for(program, 1).unwrap();
    let feed = |name: &str| program.inputs.iter().position(|i| i.name == name).map(|at| inputs[at].clone());
    let options = PassOptions { capture: true, gradients: true, ..PassOptions::default() };
    let out: PassOutput =
        run_pass(engine, program, &feed, options).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let gradients = out.parameter_gradients.into_iter().chain(out.input_gradients);
    let activations = out.activations.into_iter().map(|(name, tensor)| (name, Some(tensor)));
    let gradients = gradients.map(|(name, gradient)| {
        let value = match gradient {
            Gradient::None => None,
            Gradient::Value(tensor) => Some(tensor),
        };
        (format!("gradient/{name}"), value)
    });
    activations.chain(gradients).collect()
}

/// ‖a − b‖ / ‖b‖, with equal infinities as no difference; absolute where b is zero.
fn normwise(a: &HostTensor, b: &HostTensor) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (x, y) in a.to_f64().into_iter().zip(b.to_f64()) {
        if x != y {
            difference += (x - y) * (x - y);
        }
        if y.is_finite() {
            norm += y * y;
        }
    }
    if norm == 0.0 { difference.sqrt() } else { (difference / norm).sqrt() }
}

/// What differs by more than `bound` allows.
fn disagreements<E: Engine>(
    engine: &E,
    dtype: DType,
    bound: &dyn Fn(&Case, &Program, &str) -> f64,
) -> Vec<String> {
    let reference = ReferenceEngine::new();
    let mut wrong = Vec::new();
    for case in cases() {
        let program = case.program_in(dtype).unwrap();
        let (found, expected) =
            (quantities(engine, &case, &program), quantities(&reference, &case, &program));
        assert_eq!(found.len(), expected.len(), "{}", case.name);
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            let place = format!("{} {dtype} {name}", case.name);
            match (found, expected) {
                (None, None) => {}
                (Some(found), Some(expected)) if found.shape() == expected.shape() => {
                    let (error, bound) = (normwise(found, expected), bound(&case, &program, name));
                    // A NaN is not within any bound.
                    if !matches!(
                        error.partial_cmp(&bound),
                        Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
                    ) {
                        wrong.push(format!("{place}: error {error:.2e}, bound {bound:.2e}"));
                    }
                }
                (found, expected) => {
                    let state = |t: &Option<HostTensor>| t.as_ref().map(|t| t.shape().to_vec());
                    wrong.push(format!("{place}: {:?} against {:?}", state(found), state(expected)));
                }
            }
        }
    }
    wrong
}

/// A few times the rounding of the operator itself, which gets exact inputs and an exact
/// incoming gradient. A gradient may sum over whatever was broadcast or gathered.
fn few_etas(dtype: DType) -> impl Fn(&Case, &Program, &str) -> f64 {
    let (model, format) = (ErrorModel::default(), FloatFormat::of(dtype));
    move |case, program, name| {
        let node = &program.nodes[0];
        let inputs: Vec<_> = node.inputs.iter().map(|id| program.value(*id)).collect();
        let outputs: Vec<_> = node.outputs.iter().map(|id| program.value(*id)).collect();
        let gradient = name.starts_with("gradient/");
        let terms = if gradient {
            inputs.iter().chain(&outputs).map(|v| v.shape.iter().product()).max().unwrap_or(1)
        } else {
            case.op.forward_terms(&inputs, &outputs)
        };
        let role = match case.op.role() {
            Role::Exact if gradient => Role::Reduction,
            Role::Elementwise if gradient => Role::Softmax,
            role => role,
        };
        let steps = if gradient { stored_steps(&case.op) } else { 1.0 };
        4.0 * steps * model.eta(role, terms, &format)
    }
}

/// Gradients that libtorch computes in several operators, each result stored in the dtype.
/// Emulating the steps one by one gave libtorch's own values, or came close enough to name
/// the cause.
const fn stored_steps(op: &Op) -> f64 {
    match op {
        // −g·((a/b)/b): three stored steps, of terms that cancel to a third of their norm.
        Op::Div {} => 4.0,
        // The sum of the class weights, the share of the smoothing and their quotient are
        // scalars in the dtype: each shifts the whole gradient by up to one roundoff.
        Op::CrossEntropy { .. } => 2.0,
        _ => 1.0,
    }
}

#[test]
fn every_operator_agrees_with_the_reference_at_the_rounding_of_f64() {
    let engine = TorchEngine::new(&DeviceSpec::CPU).unwrap();
    let wrong = disagreements(&engine, DType::F64, &|_, _, _| 1e-14);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_operator_agrees_with_the_reference_within_a_few_roundings_of_each_dtype() {
    let engine = TorchEngine::new(&DeviceSpec::CPU).unwrap();
    let wrong: Vec<String> = [DType::F32, DType::F16, DType::BF16]
        .into_iter()
        .flat_map(|dtype| disagreements(&engine, dtype, &few_etas(dtype)))
        .collect();
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_operator_on_the_emulated_device_agrees_with_the_reference() {
    in_own_process("agreement::every_operator_on_the_emulated_device_agrees_with_the_reference", || {
        let engine = TorchEngine::new(&"mps-emulated".parse().unwrap()).unwrap();
        let wrong = disagreements(&engine, DType::F32, &few_etas(DType::F32));
        assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    });
}
