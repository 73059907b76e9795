//! Devices, switches, gradients and the trace on the CPU.

use super::process::in_own_process;
use crate::engine::canary::{self, Outcome};
use crate::engine::interpreter::{Gradient, PassOptions, PassOutput, run_pass};
use crate::engine::torch::{ModeSettings, TorchEngine};
use crate::engine::{DeviceSpec, Engine, EngineError};
use crate::numerics::DType;
use crate::program::{Builder, LossReduction, Op, Program};
use crate::tensor::HostTensor;
use crate::trace::{EventKind, PassTrace, Phase, detect, summarise, write_chrome};

/// Two layers, a softmax cross-entropy, and a parameter that nothing uses.
pub(super) fn classifier() -> Program {
    let mut b = Builder::new("classifier");
    let x = b.batch_input("x", &[4, 6]);
    let (w1, b1) = (b.parameter("first.weight", &[8, 6]), b.parameter("first.bias", &[8]));
    let w2 = b.parameter("second.weight", &[3, 8]);
    b.parameter("unused", &[2]);
    let labels = b.labels("labels", &[4], 3);
    let h = b.module("first", |b| b.apply(Op::Linear {}, &[x, w1, b1]));
    let h = b.module("act", |b| {
        let h = b.apply(Op::Softmax { dim: -1 }, &[h]);
        b.apply(Op::Silu {}, &[h])
    });
    let logits = b.module("second", |b| b.apply(Op::Linear {}, &[h, w2]));
    b.set_logits(logits);
    let loss = b.apply(
        Op::CrossEntropy { ignore_index: -100, label_smoothing: 0.0, reduction: LossReduction::Mean },
        &[logits, labels],
    );
    b.set_loss(loss);
    b.finish().unwrap()
}

pub(super) fn feed(program: &Program) -> impl Fn(&str) -> Option<HostTensor> {
    let values: Vec<(String, HostTensor)> = program
        .inputs
        .iter()
        .map(|input| {
            let value = program.value(input.value);
            let n: usize = value.shape.iter().product();
            let number = |i: usize| match value.dtype {
                DType::I64 => (i % input.below.unwrap_or(1)) as f64,
                _ => ((i * 37 + input.name.len() * 11) % 29) as f64 / 16.0 - 0.875,
            };
            let numbers: Vec<f64> = (0..n).map(number).collect();
            let tensor = HostTensor::from_f64(value.dtype, value.shape.clone(), &numbers).unwrap();
            (input.name.clone(), tensor)
        })
        .collect();
    move |name| values.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone())
}

pub(super) const EVERYTHING: PassOptions =
    PassOptions { capture: true, gradients: true, activation_gradients: true, trace: true };

pub(super) fn run(engine: &TorchEngine, program: &Program, options: PassOptions) -> PassOutput {
    run_pass(engine, program, &feed(program), options).unwrap()
}

fn cpu() -> TorchEngine {
    TorchEngine::new(&DeviceSpec::CPU).unwrap()
}

#[test]
fn an_unused_parameter_has_no_gradient_and_the_others_have_values() {
    let out = run(&cpu(), &classifier(), PassOptions { gradients: true, ..PassOptions::default() });
    for (name, gradient) in &out.parameter_gradients {
        match gradient {
            Gradient::None => assert_eq!(name, "unused"),
            Gradient::Value(value) => assert!(value.to_f64().iter().any(|v| *v != 0.0), "{name}"),
        }
    }
    assert_eq!(out.parameter_gradients.len(), 4);
    assert_eq!(out.devices, ["cpu"]);
}

#[test]
fn a_gradient_of_zero_is_a_value() {
    let mut b = Builder::new("zero");
    let w = b.parameter("w", &[3]);
    let zero = b.apply(Op::MulScalar { value: 0.0 }, &[w]);
    let loss = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[zero]);
    b.set_loss(loss);
    let out = run(&cpu(), &b.finish().unwrap(), PassOptions { gradients: true, ..PassOptions::default() });
    let Gradient::Value(value) = &out.parameter_gradients[0].1 else { panic!("no gradient") };
    assert_eq!(value.to_f64(), [0.0; 3]);
}

#[test]
fn a_cast_to_the_same_dtype_and_its_argument_have_gradients_of_their_own() {
    let mut b = Builder::new("aliases");
    let w = b.parameter("w", &[3]);
    let x = b.module("x", |b| b.apply(Op::MulScalar { value: 2.0 }, &[w]));
    let y = b.module("y", |b| b.apply(Op::Cast { dtype: DType::F32 }, &[x]));
    let z = b.module("z", |b| b.apply(Op::Reshape { shape: vec![3] }, &[y]));
    let sum = b.apply(Op::Add {}, &[x, z]);
    let loss = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[sum]);
    b.set_loss(loss);
    let out = run(&cpu(), &b.finish().unwrap(), PassOptions { trace: false, ..EVERYTHING });
    let of = |name: &str| match &out.activation_gradients.iter().find(|(n, _)| n == name).unwrap().1 {
        Gradient::Value(value) => value.to_f64(),
        Gradient::None => panic!("no gradient for {name}"),
    };
    assert_eq!((of("x"), of("y"), of("z")), (vec![2.0; 3], vec![1.0; 3], vec![1.0; 3]));
}

#[test]
fn observing_changes_no_bit() {
    in_own_process("basics::observing_changes_no_bit", || {
        let (engine, program) = (cpu(), classifier());
        let bare = run(&engine, &program, PassOptions { gradients: true, ..PassOptions::default() });
        let observed = run(&engine, &program, EVERYTHING);
        assert!(bare.events.is_empty() && !observed.events.is_empty());
        assert_eq!(bare.loss.unwrap().bytes(), observed.loss.unwrap().bytes());
        for ((name, a), (_, b)) in bare.parameter_gradients.iter().zip(&observed.parameter_gradients) {
            match (a, b) {
                (Gradient::Value(a), Gradient::Value(b)) => assert_eq!(a.bytes(), b.bytes(), "{name}"),
                (a, b) => assert!(matches!((a, b), (Gradient::None, Gradient::None)), "{name}"),
            }
        }
    });
}

#[test]
fn events_come_from_the_dispatcher_with_phase_node_and_module() {
    in_own_process("basics::events_come_from_the_dispatcher_with_phase_node_and_module", || {
        let (engine, program) = (cpu(), classifier());
        let out = run(&engine, &program, EVERYTHING);
        let first = |op: &str| out.events.iter().find(|e| e.op == op).unwrap_or_else(|| panic!("no {op}"));
        let softmax = first("aten::_softmax");
        assert_eq!((softmax.phase, softmax.path.as_str()), (Phase::Forward, "act"));
        assert_eq!(softmax.inputs[0].shape, [4, 8]);
        let backward = first("aten::_softmax_backward_data");
        assert_eq!((backward.phase, backward.path.as_str()), (Phase::Backward, "act"));
        assert!(backward.parent.is_some() && backward.depth > 0);
        assert!(out.events.iter().any(|e| e.kind == EventKind::Autograd));
        assert!(out.events.iter().enumerate().all(|(i, e)| e.seq == i as u64));
        let placement = detect("cpu", &[PassTrace { inputs: &out.input_devices, events: &out.events }]);
        assert!(placement.as_asked(), "{placement:#?}");
        let summary = summarise(&out.events);
        assert!(summary.transfers.is_empty() && summary.span_ns > 0);
        let mut chrome = Vec::new();
        write_chrome(&mut chrome, "torch:cpu", &out.events).unwrap();
        serde_json::from_slice::<serde_json::Value>(&chrome).unwrap();
    });
}

#[test]
fn a_pass_that_failed_leaves_the_next_one_a_trace_of_its_own() {
    in_own_process("basics::a_pass_that_failed_leaves_the_next_one_a_trace_of_its_own", || {
        let (engine, program) = (cpu(), classifier());
        engine.start_trace().unwrap();
        let out = run(&engine, &program, EVERYTHING);
        assert_eq!(out.events.iter().filter(|e| e.op == "aten::_softmax").count(), 1);
    });
}

#[test]
fn an_error_of_libtorch_is_an_error_that_names_the_node() {
    let mut b = Builder::new("bad index");
    let (table, index) = (b.parameter("table", &[3, 2]), b.batch_indices("index", &[1], 99));
    let rows = b.module("wte", |b| b.apply(Op::Embedding {}, &[table, index]));
    b.set_logits(rows);
    let program = b.finish().unwrap();
    let feed = |name: &str| match name {
        "table" => HostTensor::from_f64(DType::F32, vec![3, 2], &[0.0; 6]).ok(),
        _ => HostTensor::from_i64(vec![1], &[77]).ok(),
    };
    let error = run_pass(&cpu(), &program, &feed, PassOptions::default()).unwrap_err().to_string();
    assert!(error.contains("#0 embedding (wte)") && error.contains("index out of range"), "{error}");
    assert!(!error.contains("Exception raised from"), "{error}");
}

#[test]
fn devices_that_are_not_there_are_absent_with_a_reason() {
    in_own_process("basics::devices_that_are_not_there_are_absent_with_a_reason", || {
        for (device, part) in [("metal", "torch:mps"), ("mps", "macOS"), ("mps:1", "index 0")] {
            let error = TorchEngine::new(&device.parse().unwrap()).unwrap_err();
            assert!(matches!(error, EngineError::Absent { .. }), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    });
}

#[test]
fn every_switch_is_set_to_its_exact_side_and_read_back() {
    in_own_process("basics::every_switch_is_set_to_its_exact_side_and_read_back", || {
        let engine = cpu();
        let mode = |name: &str| {
            let modes = engine.info().modes;
            modes.into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
        };
        for name in ["allow_tf32_matmul", "allow_tf32_cudnn", "allow_f16_reduced_precision_reduction"] {
            assert_eq!(mode(name), "false", "{name}");
        }
        assert_eq!(mode("float32_matmul_precision"), "highest");
        engine.configure(&ModeSettings { tf32: true, deterministic: true, threads: Some(1) }).unwrap();
        assert_eq!(
            (mode("allow_tf32_matmul"), mode("float32_matmul_precision")),
            ("true".into(), "high".into())
        );
        assert_eq!((mode("deterministic_algorithms"), mode("threads")), ("true".into(), "1".into()));
        engine.configure(&ModeSettings::default()).unwrap();
        assert_eq!((mode("allow_tf32_matmul"), mode("allow_tf32_cudnn")), ("false".into(), "false".into()));
        assert_eq!(mode("PYTORCH_ENABLE_MPS_FALLBACK"), "unset");
    });
}

#[test]
fn the_canary_verifies_the_cpu_in_every_dtype() {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
        let canary = canary::verify(&cpu(), dtype);
        assert!(canary.verified, "{:?}", canary.complaint());
        assert!(canary.kernels.iter().all(|kernel| kernel.outcome == Outcome::Exact));
    }
}
