//! The trait's other promises.

use super::harness::{cpu, forward, gradients, host};
use crate::engine::candle::{CandleEngine, KernelSet, VERSION};
use crate::engine::interpreter::{Gradient, PassOptions, PassOutput, run_pass};
use crate::engine::{BackwardRequest, Call, DeviceSpec, Engine, EngineError, Leaf};
use crate::numerics::DType;
use crate::program::{Builder, Gelu, Op, Program, Value};
use crate::tensor::HostTensor;

#[test]
fn the_version_is_the_one_that_is_locked() {
    let lock: toml::Table = include_str!("../../../../Cargo.lock").parse().unwrap();
    for name in ["candle-core", "candle-nn"] {
        let package = lock["package"].as_array().unwrap().iter().find(|p| p["name"].as_str() == Some(name));
        assert_eq!(package.unwrap()["version"].as_str(), Some(VERSION), "{name}");
    }
}

#[test]
fn an_absent_device_says_why_and_what_to_do() {
    for (device, last) in [("cuda:7", "an NVIDIA GPU"), ("metal", "an Apple GPU"), ("mps", "`metal`")] {
        let error = CandleEngine::new(&device.parse().unwrap()).unwrap_err();
        let EngineError::Absent { target, reason, .. } = error else { panic!("{error:?}") };
        assert!(target.starts_with("candle:"), "{target}");
        assert!(reason.contains(last), "{reason}");
    }
}

#[test]
fn every_dtype_survives_the_round_trip_bit_by_bit() {
    let engine = cpu();
    for dtype in DType::ALL {
        let values = if dtype.is_float() {
            vec![1.5, -0.0, f64::INFINITY, f64::NAN, 3e-5, -7.0]
        } else {
            vec![1.0, 0.0, 2.0, 7.0, 255.0, 9.0]
        };
        let tensor = host(dtype, &[2, 3], &values);
        for leaf in [Leaf::Constant, Leaf::Differentiable] {
            let back = engine.download(&engine.upload(&tensor, leaf).unwrap()).unwrap();
            assert_eq!((back.dtype(), back.shape(), back.bytes()), (dtype, tensor.shape(), tensor.bytes()));
        }
    }
}

#[test]
fn a_strided_view_is_downloaded_in_row_major_order() {
    let x = host(DType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let y = forward(&cpu(), &Op::Permute { dims: vec![1, 0] }, &[x]).unwrap().remove(0);
    assert_eq!(y.to_f64(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

#[test]
fn a_tensor_says_where_it_lives() {
    let engine = cpu();
    let x = engine.upload(&host(DType::F32, &[1], &[1.0]), Leaf::Constant).unwrap();
    assert_eq!(engine.device_of(&x), "cpu");
    assert_eq!(engine.info().device, "cpu");
    assert!(engine.info().deterministic && engine.peak_memory_bytes().is_none());
    engine.synchronize().unwrap();
}

/// The bits of a watched tensor, its strides, and the gradient of its handle.
fn watched(permuted: bool) -> (Vec<usize>, Vec<usize>, HostTensor, HostTensor) {
    let engine = cpu();
    let x = host(DType::F32, &[2, 3], &[-0.0, 2.0, f64::NAN, 4.0, 5.0, 6.0]);
    let x = engine.upload(&x, Leaf::Differentiable).unwrap();
    let x = if permuted { x.t().unwrap() } else { x };
    let (y, handle) = engine.watch(&x).unwrap();
    assert_eq!(engine.download(&y).unwrap().bytes(), engine.download(&x).unwrap().bytes());
    let loss = y.affine(2.0, 0.0).unwrap().sum_all().unwrap();
    let request = BackwardRequest { loss: &loss, wrt: &[&handle] };
    let gradient = engine.backward(&request).unwrap().remove(0).unwrap();
    let bits = engine.download(&y).unwrap();
    (x.stride().to_vec(), y.stride().to_vec(), bits, engine.download(&gradient).unwrap())
}

#[test]
fn watching_changes_neither_bits_nor_strides_and_delivers_the_gradient() {
    for permuted in [false, true] {
        let (before, after, _, gradient) = watched(permuted);
        assert_eq!(before, after);
        assert_eq!(gradient.shape(), if permuted { [3, 2] } else { [2, 3] });
        assert_eq!(gradient.to_f64(), [2.0; 6]);
    }
}

#[test]
fn a_leaf_that_the_loss_does_not_depend_on_has_no_gradient() {
    let engine = cpu();
    let x = engine.upload(&host(DType::F32, &[2], &[1.0, 2.0]), Leaf::Differentiable).unwrap();
    let unused = engine.upload(&host(DType::F32, &[2], &[1.0, 2.0]), Leaf::Differentiable).unwrap();
    let loss = x.sum_all().unwrap();
    let gradients = engine.backward(&BackwardRequest { loss: &loss, wrt: &[&x, &unused] }).unwrap();
    assert!(gradients[0].is_some() && gradients[1].is_none());
}

#[test]
fn fused_kernels_declare_that_they_have_no_gradient() {
    let engine = CandleEngine::with_kernels(&DeviceSpec::CPU, KernelSet::Fused).unwrap();
    let x = Value { shape: vec![2, 3], dtype: DType::F32 };
    let op = Op::Softmax { dim: -1 };
    let leaf = engine.upload(&host(DType::F32, &[2, 3], &[0.0; 6]), Leaf::Differentiable).unwrap();
    let call = Call { op: &op, inputs: &[&x], outputs: &[&x], node: 3, path: "head" };
    let error = engine.apply(&call, &[&leaf]).unwrap_err();
    assert!(matches!(error, EngineError::Unsupported(_)), "{error:?}");
    let constant = engine.upload(&host(DType::F32, &[2, 3], &[0.0; 6]), Leaf::Constant).unwrap();
    assert!(engine.apply(&call, &[&constant]).is_ok());
}

#[test]
fn what_candle_refuses_or_panics_on_is_an_error_that_names_the_node() {
    let engine = cpu();
    let x = Value { shape: vec![2, 3], dtype: DType::F32 };
    let index = Value { shape: vec![1], dtype: DType::I64 };
    let out = Value { shape: vec![1, 3], dtype: DType::F32 };
    let table = engine.upload(&host(DType::F32, &[2, 3], &[0.0; 6]), Leaf::Constant).unwrap();
    let row = engine.upload(&HostTensor::from_i64(vec![1], &[5]).unwrap(), Leaf::Constant).unwrap();
    let op = Op::IndexSelect { dim: 0 };
    let call = Call { op: &op, inputs: &[&x, &index], outputs: &[&out], node: 3, path: "table" };
    let message = engine.apply(&call, &[&table, &row]).unwrap_err().to_string();
    assert!(message.starts_with("#3 index_select (table) failed in candle:cpu: "), "{message}");
    let panicked = crate::engine::candle::run::caught::<()>(|| panic!("inside"));
    assert_eq!(panicked.unwrap_err(), "candle panicked: inside");
}

/// A block whose activations are views, reductions over views and products.
fn block() -> Program {
    let mut b = Builder::new("block");
    let x = b.batch_input("x", &[2, 5, 4]);
    let (w, v) = (b.parameter("w", &[6, 4]), b.parameter("v", &[6]));
    let h = b.module("linear", |b| b.apply(Op::Linear {}, &[x, w, v]));
    let h = b.module("act", |b| b.apply(Op::Gelu { approximate: Gelu::Tanh }, &[h]));
    let h = b.module("turn", |b| b.apply(Op::Permute { dims: vec![0, 2, 1] }, &[h]));
    let h = b.module("mean", |b| b.apply(Op::Mean { dims: vec![-1], keepdim: true }, &[h]));
    let h = b.module("soft", |b| b.apply(Op::Softmax { dim: 1 }, &[h]));
    let h = b.apply(Op::Mul {}, &[h, h]);
    let loss = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[h]);
    b.set_loss(loss);
    b.finish().unwrap()
}

#[test]
fn observing_changes_no_bit_of_the_loss_or_of_a_parameter_gradient() {
    let program = block();
    let feed = |name: &str| {
        let shape: &[usize] = match name {
            "x" => &[2, 5, 4],
            "w" => &[6, 4],
            _ => &[6],
        };
        let n = shape.iter().product::<usize>();
        Some(host(DType::F32, shape, &(0..n).map(|i| (i as f64 * 0.7).sin()).collect::<Vec<_>>()))
    };
    let run = |capture, activation_gradients| {
        let options =
            PassOptions { capture, gradients: true, activation_gradients, ..PassOptions::default() };
        run_pass(&cpu(), &program, &feed, options).unwrap()
    };
    let bits = |output: &PassOutput| {
        let mut all = vec![output.loss.as_ref().unwrap().bytes().to_vec()];
        for gradient in gradients(output).into_values() {
            all.push(gradient.unwrap().bytes().to_vec());
        }
        all
    };
    let plain = run(false, false);
    let observed = run(true, true);
    assert_eq!(bits(&plain), bits(&run(true, false)));
    assert_eq!(bits(&plain), bits(&observed));
    assert_eq!(observed.activation_gradients.len(), 5);
    assert!(observed.activation_gradients.iter().all(|(_, g)| matches!(g, Gradient::Value(_))));
    assert_eq!(observed.devices, ["cpu"]);
}
