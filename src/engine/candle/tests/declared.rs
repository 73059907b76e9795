//! What is declared and what happens are the same, for every operator and dtype.

use super::cases::cases;
use super::harness::{cpu, gradients, prepare};
use crate::engine::interpreter::PassError;
use crate::engine::{Engine, EngineError, Support};
use crate::numerics::DType;
use crate::program::Value;
use crate::trace::Phase;

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// What happened, in words; `None`: declined as unsupported.
fn reality(case: &crate::conformance::Case, dtype: DType, phase: Phase) -> Option<Result<(), String>> {
    match prepare(case, dtype).pass(&cpu(), phase == Phase::Backward) {
        Err(PassError::Node { source: EngineError::Unsupported(_), .. }) => None,
        Err(error) => Some(Err(error.to_string())),
        Ok(output) => {
            let lost: Vec<_> =
                gradients(&output).into_iter().filter(|(_, g)| g.is_none()).map(|(name, _)| name).collect();
            Some(if lost.is_empty() { Ok(()) } else { Err(format!("no gradient for {lost:?}")) })
        }
    }
}

#[test]
fn declared_support_and_reality_agree_for_every_operator_and_dtype() {
    let engine = cpu();
    let mut wrong = Vec::new();
    for case in cases() {
        for dtype in FLOATS {
            let program = case.program_in(dtype).unwrap();
            let node = &program.nodes[0];
            let types: Vec<&Value> = node.inputs.iter().map(|id| program.value(*id)).collect();
            let output = program.value(node.outputs[0]).dtype;
            for phase in [Phase::Forward, Phase::Backward] {
                if phase == Phase::Backward && program.outputs.loss.is_none() {
                    continue;
                }
                let declared = engine.supports(&case.op, output, &types, phase);
                let done = reality(&case, dtype, phase);
                let agree = match &declared {
                    Support::Unsupported(_) => done.is_none(),
                    Support::Native | Support::Decomposed(_) => done == Some(Ok(())),
                };
                if !agree {
                    wrong.push(format!("{} {dtype} {phase:?}: {declared:?}, but {done:?}", case.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
