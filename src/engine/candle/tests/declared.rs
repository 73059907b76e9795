//! What is declared and what happens are the same, for every operator and dtype.

use std::collections::BTreeSet;

use super::cases::cases;
use super::harness::{backward, cpu, forward, types};
use crate::engine::{Engine, EngineError, Support};
use crate::numerics::DType;
use crate::program::{OpKind, Value, infer};
use crate::tensor::HostTensor;
use crate::trace::Phase;

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

#[test]
fn every_operator_has_a_case() {
    let covered: BTreeSet<OpKind> = cases().iter().map(|case| case.op.kind()).collect();
    let missing: Vec<_> = OpKind::ALL.iter().filter(|kind| !covered.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn declared_support_and_reality_agree_for_every_operator_and_dtype() {
    let engine = cpu();
    let mut wrong = Vec::new();
    for case in cases() {
        for dtype in FLOATS {
            let inputs = case.tensors(dtype);
            let values = types(&inputs);
            let values: Vec<&Value> = values.iter().collect();
            let output = infer(&case.op, &values).unwrap().remove(0);
            for phase in [Phase::Forward, Phase::Backward] {
                let declared = engine.supports(&case.op, output.dtype, &values, phase);
                let done = match phase {
                    Phase::Forward => forward(&engine, &case.op, &inputs).map(|_| String::new()),
                    _ if !output.dtype.is_float() => continue,
                    _ => {
                        let g = HostTensor::from_f64(
                            output.dtype,
                            output.shape.clone(),
                            &vec![1.0; output.shape.iter().product()],
                        )
                        .unwrap();
                        backward(&engine, &case.op, &inputs, &g).map(|(_, gradients)| {
                            let lost = |(i, g): &(usize, &Option<HostTensor>)| {
                                g.is_none() && inputs[*i].dtype().is_float() && !is_statistic(&case.op, *i)
                            };
                            let lost: Vec<_> =
                                gradients.iter().enumerate().filter(lost).map(|(i, _)| i).collect();
                            if lost.is_empty() { String::new() } else { format!("no gradient for {lost:?}") }
                        })
                    }
                };
                let agree = match (&declared, &done) {
                    (Support::Unsupported(_), Err(EngineError::Unsupported(_))) => true,
                    (Support::Native | Support::Decomposed(_), Ok(lost)) => lost.is_empty(),
                    _ => false,
                };
                if !agree {
                    wrong.push(format!("{:?} {dtype} {phase:?}: {declared:?}, but {done:?}", case.op));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Running statistics take no gradient.
fn is_statistic(op: &crate::program::Op, input: usize) -> bool {
    matches!(op, crate::program::Op::BatchNorm { .. }) && input >= 3
}
