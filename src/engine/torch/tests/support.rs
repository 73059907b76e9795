//! What is declared is what libtorch does.

use crate::conformance::cases;
use crate::engine::interpreter::{PassError, PassOptions, run_pass};
use crate::engine::torch::TorchEngine;
use crate::engine::{DeviceSpec, Engine, Support};
use crate::numerics::DType;
use crate::program::Program;
use crate::trace::Phase;

/// Whether the first node, the operator under test, is declared for a phase.
fn declared(engine: &TorchEngine, program: &Program, dtype: DType, phase: Phase) -> bool {
    let node = &program.nodes[0];
    let types: Vec<_> = node.inputs.iter().map(|id| program.value(*id)).collect();
    engine.supports(&node.op, dtype, &types, phase) == Support::Native
}

#[test]
fn the_declared_set_is_what_libtorch_does_for_every_operator_dtype_and_direction() {
    let engine = TorchEngine::new(&DeviceSpec::CPU).unwrap();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for case in cases() {
            let program = case.program_in(dtype).unwrap();
            let inputs = case.host_inputs_for(&program, 1).unwrap();
            let feed = |name: &str| {
                program.inputs.iter().position(|input| input.name == name).map(|at| inputs[at].clone())
            };
            for (phase, gradients) in [(Phase::Forward, false), (Phase::Backward, true)] {
                if gradients && program.outputs.loss.is_none() {
                    continue;
                }
                tried += 1;
                let options = PassOptions { capture: true, gradients, ..PassOptions::default() };
                let outcome = run_pass(&engine, &program, &feed, options);
                let does = outcome.is_ok();
                if does != declared(&engine, &program, dtype, phase) {
                    let said = outcome.err().map(|error: PassError| error.to_string());
                    wrong.push(format!("{} {dtype} {phase:?}: {}", case.name, said.unwrap_or_default()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried > 600, "{tried}");
}
