//! What is planted on the software MPS device is found, at its operator.

use super::basics::{EVERYTHING, classifier, run};
use super::process::in_own_process;
use crate::engine::canary::{self, Outcome};
use crate::engine::interpreter::{Gradient, PassOptions, PassOutput};
use crate::engine::torch::TorchEngine;
use crate::engine::torch::native::software_mps::{self, DEVICE, Fault};
use crate::engine::{DeviceSpec, Engine, EngineError, Support};
use crate::numerics::DType;
use crate::program::{Builder, Op, Program};
use crate::tensor::HostTensor;
use crate::trace::{FallbackKind, PassTrace, Phase, Placement, detect, summarise};

const LABEL: &str = "mps-emulated:0";

fn emulated() -> TorchEngine {
    TorchEngine::new(&"mps-emulated".parse().unwrap()).unwrap()
}

fn placement(passes: &[PassOutput]) -> Placement {
    let traces: Vec<PassTrace<'_>> =
        passes.iter().map(|out| PassTrace { inputs: &out.input_devices, events: &out.events }).collect();
    detect(LABEL, &traces)
}

fn gradient<'a>(out: &'a PassOutput, name: &str) -> &'a HostTensor {
    let all = out.parameter_gradients.iter().chain(&out.input_gradients);
    match all.into_iter().find(|(n, _)| n == name) {
        Some((_, Gradient::Value(tensor))) => tensor,
        other => panic!("{name}: {other:?}"),
    }
}

fn largest_difference(a: &HostTensor, b: &HostTensor) -> f64 {
    let differences = a.to_f64().into_iter().zip(b.to_f64()).map(|(x, y)| (x - y).abs());
    differences.fold(0.0, |worst: f64, d| if d > worst || d.is_nan() { d } else { worst })
}

#[test]
fn the_emulated_device_says_so_everywhere() {
    in_own_process("planted::the_emulated_device_says_so_everywhere", || {
        let engine = emulated();
        let info = engine.info();
        assert!(info.emulated && info.device == LABEL, "{info:?}");
        assert!(info.device_name.unwrap().contains("emulated"));
        let out = run(&engine, &classifier(), EVERYTHING);
        assert_eq!(out.devices, [LABEL]);
        let tensors: Vec<_> =
            out.events.iter().flat_map(crate::trace::OperatorEvent::tensors).filter(|t| !t.number).collect();
        assert!(tensors.len() > 10 && tensors.iter().all(|tensor| tensor.device == LABEL));
        // In this process there is no other mps, by any name.
        let error = TorchEngine::new(&"mps".parse().unwrap()).unwrap_err();
        assert!(
            matches!(&error, EngineError::Absent { reason, .. } if reason.contains("mps-emulated")),
            "{error}"
        );
    });
}

#[test]
fn without_asking_for_it_there_is_no_emulated_device() {
    in_own_process("planted::without_asking_for_it_there_is_no_emulated_device", || {
        TorchEngine::new(&DeviceSpec::CPU).unwrap();
        let presence = TorchEngine::presence(&"mps".parse().unwrap());
        assert!(cfg!(target_os = "macos") || !presence.built, "{presence:?}");
        assert!(!software_mps::is_registered());
    });
}

#[test]
fn a_pass_without_faults_stays_on_the_device_and_agrees_with_the_cpu() {
    in_own_process("planted::a_pass_without_faults_stays_on_the_device_and_agrees_with_the_cpu", || {
        let (engine, program) = (emulated(), classifier());
        let out = run(&engine, &program, EVERYTHING);
        let found = placement(&[out]);
        assert!(found.as_asked(), "{:#?}", found.fallbacks);
        let out = run(&engine, &program, PassOptions { trace: false, ..EVERYTHING });
        let host = run(&TorchEngine::new(&DeviceSpec::CPU).unwrap(), &program, EVERYTHING);
        assert!(largest_difference(out.loss.as_ref().unwrap(), host.loss.as_ref().unwrap()) < 1e-6);
        let name = "first.weight";
        assert!(largest_difference(gradient(&out, name), gradient(&host, name)) < 1e-8);
        assert!(out.parameter_gradients.iter().any(|(n, g)| n == "unused" && matches!(g, Gradient::None)));
    });
}

#[test]
fn a_forward_fallback_is_found_although_every_value_agrees() {
    in_own_process("planted::a_forward_fallback_is_found_although_every_value_agrees", || {
        let (engine, program) = (emulated(), classifier());
        let clean = run(&engine, &program, EVERYTHING);
        software_mps::set_unsupported(&["aten::_softmax"]).unwrap();
        let out = run(&engine, &program, EVERYTHING);
        assert_eq!(out.loss.as_ref().unwrap().bytes(), clean.loss.as_ref().unwrap().bytes());
        let summary = summarise(&out.events);
        assert_eq!(summary.transfers.len(), 2, "{:?}", summary.transfers);
        let found = placement(&[out]);
        let [fallback] = found.fallbacks.as_slice() else { panic!("{:#?}", found.fallbacks) };
        assert_eq!(
            (fallback.kind, fallback.operator.as_str()),
            (FallbackKind::OperatorOnCpu, "aten::_softmax")
        );
        assert_eq!((fallback.phase, fallback.path.as_str()), (Phase::Forward, "act"));
        assert_eq!((&fallback.shapes, &fallback.dtypes), (&vec![vec![4, 8]], &vec!["f32".to_owned()]));
        assert_eq!((fallback.calls_per_pass(), fallback.in_each_step()), (1, true));
        // The buffer for the result travels down as well, and the result up.
        assert_eq!((fallback.bytes_to_host, fallback.bytes_to_device), (256, 128));
        assert!(fallback.share > 0.0);
    });
}

#[test]
fn a_backward_only_fallback_is_found_in_the_module_of_its_forward() {
    in_own_process("planted::a_backward_only_fallback_is_found_in_the_module_of_its_forward", || {
        let engine = emulated();
        software_mps::set_unsupported(&["aten::_softmax_backward_data"]).unwrap();
        let found = placement(&[run(&engine, &classifier(), EVERYTHING)]);
        let [fallback] = found.fallbacks.as_slice() else { panic!("{:#?}", found.fallbacks) };
        assert_eq!(fallback.operator, "aten::_softmax_backward_data");
        assert_eq!((fallback.phase, fallback.path.as_str()), (Phase::Backward, "act"));
        software_mps::clear().unwrap();
        software_mps::add_fault("aten::addmm", Fault::FallbackInBackward).unwrap();
        software_mps::add_fault("aten::mm", Fault::FallbackInBackward).unwrap();
        let found = placement(&[run(&engine, &classifier(), EVERYTHING)]);
        assert!(!found.fallbacks.is_empty());
        assert!(found.fallbacks.iter().all(|f| f.phase == Phase::Backward), "{:#?}", found.fallbacks);
    });
}

#[test]
fn a_fallback_in_one_step_of_many_is_found_in_that_step() {
    in_own_process("planted::a_fallback_in_one_step_of_many_is_found_in_that_step", || {
        let (engine, program) = (emulated(), classifier());
        software_mps::add_fault("aten::_softmax", Fault::FallbackEvery { calls: 3 }).unwrap();
        let passes: Vec<PassOutput> = (0..3).map(|_| run(&engine, &program, EVERYTHING)).collect();
        let found = placement(&passes);
        let [fallback] = found.fallbacks.as_slice() else { panic!("{:#?}", found.fallbacks) };
        assert_eq!(fallback.calls.iter().sum::<u32>(), 1, "{:?}", fallback.calls);
        assert!(!fallback.in_each_step());
    });
}

#[test]
fn a_whole_pass_on_the_cpu_is_told_from_a_pass_of_the_device() {
    in_own_process("planted::a_whole_pass_on_the_cpu_is_told_from_a_pass_of_the_device", || {
        let out = run(&TorchEngine::new(&DeviceSpec::CPU).unwrap(), &classifier(), EVERYTHING);
        let found = placement(&[out]);
        assert!(found.device_unused());
        assert_eq!(found.fallbacks[0].kind, FallbackKind::DeviceNotAsked);
    });
}

/// Operators that read views and write into tails: a sliced, transposed input through a
/// matrix product, a normalisation and an activation, with broadcast biases.
fn views() -> Program {
    let mut b = Builder::new("views");
    let x = b.batch_input("x", &[5, 7, 9]);
    let (w, bias) = (b.parameter("w", &[9, 6]), b.parameter("bias", &[6]));
    let part = b.module("part", |b| b.apply(Op::Slice { dim: 0, start: 2, end: 5, step: 1 }, &[x]));
    let half = b.module("half", |b| b.apply(Op::MulScalar { value: 0.5 }, &[part]));
    let turned = b.module("turned", |b| b.apply(Op::Permute { dims: vec![1, 0, 2] }, &[half]));
    let act = b.module("act", |b| b.apply(Op::Tanh {}, &[turned]));
    let product = b.module("product", |b| b.apply(Op::Matmul {}, &[act, w]));
    let shifted = b.module("shifted", |b| b.apply(Op::Add {}, &[product, bias]));
    let wide = b.module("wide", |b| b.apply(Op::Sigmoid {}, &[shifted]));
    b.set_logits(wide);
    let loss = b.apply(Op::Mean { dims: vec![], keepdim: false }, &[wide]);
    b.set_loss(loss);
    b.finish().unwrap()
}

/// Worst difference to the CPU: of each captured output, in order, then of the gradients.
fn differences(engine: &TorchEngine, program: &Program) -> Vec<(String, f64)> {
    let host = run(&TorchEngine::new(&DeviceSpec::CPU).unwrap(), program, EVERYTHING);
    let out = run(engine, program, EVERYTHING);
    let activations = out.activations.iter().zip(&host.activations);
    let mut all: Vec<(String, f64)> =
        activations.map(|((name, a), (_, b))| (name.clone(), largest_difference(a, b))).collect();
    for (name, _) in &host.parameter_gradients {
        all.push((name.clone(), largest_difference(gradient(&out, name), gradient(&host, name))));
    }
    all
}

/// A fault of one operator is first seen at the module that runs it.
fn located(operator: &str, fault: Fault, expected: &str) {
    let (engine, program) = (emulated(), views());
    assert!(differences(&engine, &program).iter().all(|(_, d)| *d < 1e-6));
    software_mps::add_fault(operator, fault).unwrap();
    let found = differences(&engine, &program);
    assert!(software_mps::fault_count() > 0, "{fault:?} never struck");
    let first = found.iter().find(|(_, d)| d.is_nan() || *d > 1e-4);
    assert_eq!(first.map(|(name, _)| name.as_str()), Some(expected), "{fault:?}: {found:?}");
}

#[test]
fn an_ignored_offset_of_a_view_is_located() {
    in_own_process("planted::an_ignored_offset_of_a_view_is_located", || {
        located("aten::mul", Fault::IgnoreStorageOffset, "half");
    });
}

#[test]
fn a_transposed_input_read_as_contiguous_is_located() {
    in_own_process("planted::a_transposed_input_read_as_contiguous_is_located", || {
        located("aten::tanh", Fault::TransposedAsContiguous, "act");
    });
}

#[test]
fn a_tail_that_was_not_computed_is_located() {
    in_own_process("planted::a_tail_that_was_not_computed_is_located", || {
        located("aten::sigmoid", Fault::TailNotComputed { block_elements: 100, stale: false }, "wide");
        software_mps::clear().unwrap();
        located("aten::sigmoid", Fault::TailNotComputed { block_elements: 100, stale: true }, "wide");
    });
}

#[test]
fn one_nan_is_located() {
    in_own_process("planted::one_nan_is_located", || {
        located("aten::tanh", Fault::OneNan, "act");
    });
}

#[test]
fn a_gradient_not_reduced_over_the_broadcast_dimension_is_located() {
    in_own_process("planted::a_gradient_not_reduced_over_the_broadcast_dimension_is_located", || {
        located("aten::sum", Fault::BroadcastNotReduced, "bias");
    });
}

#[test]
fn half_accumulation_is_located() {
    in_own_process("planted::half_accumulation_is_located", || {
        let mut b = Builder::new("long sum");
        let x = b.batch_input("x", &[2, 4000]);
        let ones = b.apply(Op::AddScalar { value: 1.0 }, &[x]);
        let sum = b.module("sum", |b| b.apply(Op::Sum { dims: vec![1], keepdim: false }, &[ones]));
        b.set_logits(sum);
        let program = b.finish().unwrap();
        let engine = emulated();
        let forward = PassOptions { capture: true, ..PassOptions::default() };
        let out = |engine: &TorchEngine| run(engine, &program, forward).logits.unwrap();
        let host = out(&TorchEngine::new(&DeviceSpec::CPU).unwrap());
        assert!(largest_difference(&out(&engine), &host) < 1e-2);
        software_mps::add_fault("aten::sum", Fault::HalfAccumulation).unwrap();
        assert!(largest_difference(&out(&engine), &host) > 1.0);
        assert!(software_mps::fault_count() > 0);
    });
}

#[test]
fn an_in_place_result_on_a_non_contiguous_destination_that_is_lost_is_found() {
    in_own_process(
        "planted::an_in_place_result_on_a_non_contiguous_destination_that_is_lost_is_found",
        || {
            // The clone that libtorch writes into keeps the strides of its transposed argument.
            let mut b = Builder::new("put");
            let (x, values) = (b.batch_input("x", &[4, 3]), b.batch_input("values", &[2, 4]));
            let index = b.batch_indices("index", &[2], 3);
            let turned = b.module("turned", |b| b.apply(Op::Permute { dims: vec![1, 0] }, &[x]));
            let put =
                b.module("put", |b| b.apply(Op::IndexPut { accumulate: true }, &[turned, index, values]));
            b.set_logits(put);
            let loss = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[put]);
            b.set_loss(loss);
            let (engine, program) = (emulated(), b.finish().unwrap());
            assert!(differences(&engine, &program).iter().all(|(_, d)| *d < 1e-6));
            software_mps::add_fault("aten::_index_put_impl_", Fault::InPlaceLost).unwrap();
            let found = differences(&engine, &program);
            assert!(software_mps::fault_count() > 0);
            let first = found.iter().find(|(_, d)| *d > 1e-4).map(|(name, _)| name.as_str());
            assert_eq!(first, Some("put"), "{found:?}");
        },
    );
}

#[test]
fn the_canary_catches_devices_that_do_not_compute() {
    in_own_process("planted::the_canary_catches_devices_that_do_not_compute", || {
        let engine = emulated();
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let canary = canary::verify(&engine, dtype);
            assert!(canary.verified, "{:?}", canary.complaint());
        }
        let outcomes = |operator: &str, fault: Fault| {
            software_mps::clear().unwrap();
            software_mps::add_fault(operator, fault).unwrap();
            let canary = canary::verify(&engine, DType::F32);
            software_mps::clear().unwrap();
            assert!(!canary.verified && canary.complaint().is_some());
            canary.kernels.into_iter().map(|kernel| kernel.outcome).collect::<Vec<_>>()
        };
        let zeros = outcomes(DEVICE, Fault::Zeroed);
        assert!(matches!(zeros[0], Outcome::Wrong { found: 0.0, .. }), "{zeros:?}");
        let refused = outcomes(DEVICE, Fault::FailAllocation);
        assert!(refused.iter().all(|outcome| matches!(outcome, Outcome::Failed { .. })), "{refused:?}");
        let drifting = outcomes("aten::mm", Fault::WrongFirstCall { epsilon: 1e-3 });
        assert!(matches!(drifting[0], Outcome::Wrong { .. }), "{drifting:?}");
        let tail = outcomes("aten::sum", Fault::TailNotComputed { block_elements: 16, stale: false });
        assert!(matches!(tail[1], Outcome::Wrong { .. }), "{tail:?}");
        let view = outcomes("aten::copy_", Fault::TransposedAsContiguous);
        assert!(matches!(view[3], Outcome::Wrong { .. }), "{view:?}");
    });
}

#[test]
fn the_canary_catches_a_device_whose_runs_differ() {
    in_own_process("planted::the_canary_catches_a_device_whose_runs_differ", || {
        let engine = emulated();
        // In f32 the first call is off by less than half a rounding step, the second by more.
        software_mps::add_fault("aten::mm", Fault::Drift { epsilon: 4e-8 }).unwrap();
        let canary = canary::verify(&engine, DType::F32);
        assert!(!canary.verified);
        let outcome = &canary.kernels[0].outcome;
        assert!(matches!(outcome, Outcome::NotRepeatable { .. }), "{outcome:?}");
    });
}

#[test]
fn f64_is_declined_by_declaration_and_by_the_device() {
    in_own_process("planted::f64_is_declined_by_declaration_and_by_the_device", || {
        let engine = emulated();
        let support = engine.supports(&Op::Relu {}, DType::F64, &[], Phase::Forward);
        assert!(matches!(support, Support::Unsupported(reason) if reason.contains("f64")));
        let host = HostTensor::from_f64(DType::F64, vec![1], &[1.0]).unwrap();
        let error = engine.upload(&host, crate::engine::Leaf::Constant).unwrap_err().to_string();
        assert!(error.contains("float64"), "{error}");
        let canary = canary::verify(&engine, DType::F64);
        assert!(
            !canary.verified && canary.kernels.iter().all(|k| matches!(k.outcome, Outcome::Skipped { .. }))
        );
    });
}
