//! Known values of special cases. Where `ATen`'s behaviour is not obvious, it was read off
//! PyTorch 2.11 on the CPU in f64.

use super::{apply, apply_with, host};
use crate::engine::reference::ReferenceEngine;
use crate::numerics::DType;
use crate::program::{Gelu, LossReduction, Op};
use crate::tensor::HostTensor;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn indices(values: &[i64]) -> HostTensor {
    HostTensor::from_i64(vec![values.len()], values).unwrap()
}

fn mask(shape: &[usize], values: &[f64]) -> HostTensor {
    HostTensor::from_f64(DType::U8, shape.to_vec(), values).unwrap()
}

/// Equal, NaN to NaN included.
#[track_caller]
fn same(found: &[f64], expected: &[f64]) {
    let equal = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(equal),
        "found {found:?}, expected {expected:?}"
    );
}

#[track_caller]
fn close(found: &[f64], expected: &[f64]) {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 4.0 * f64::EPSILON * b.abs();
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(near),
        "found {found:?}, expected {expected:?}"
    );
}

/// Result and gradient of an elementwise operator of one input.
fn pointwise(op: &Op, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (results, gradients) = apply(op, &[host(&[x.len()], x)]);
    (results[0].to_f64(), gradients[0].clone().unwrap())
}

#[test]
fn nan_passes_and_kinks_have_the_gradients_of_aten() {
    let x = [0.0, NAN, -0.0, 2.0];
    let table = [
        (Op::Relu {}, [0.0, NAN, 0.0, 2.0], [0.0, 1.0, 0.0, 1.0]),
        (Op::Abs {}, [0.0, NAN, 0.0, 2.0], [0.0, 0.0, 0.0, 1.0]),
        (Op::Clamp { min: Some(0.0), max: Some(1.0) }, [0.0, NAN, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]),
        (Op::LeakyRelu { negative_slope: 0.5 }, [0.0, NAN, 0.0, 2.0], [0.5, 0.5, 0.5, 1.0]),
        (Op::PowScalar { exponent: 0.0 }, [1.0; 4], [0.0; 4]),
        (Op::PowScalar { exponent: 2.0 }, [0.0, NAN, 0.0, 4.0], [0.0, NAN, 0.0, 4.0]),
        (Op::PowScalar { exponent: -1.0 }, [INF, NAN, -INF, 0.5], [-INF, NAN, -INF, -0.25]),
    ];
    for (op, y, dx) in table {
        let (found, gradient) = pointwise(&op, &x);
        same(&found, &y);
        same(&gradient, &dx);
    }
    let (_, gradient) = pointwise(&Op::Hardswish {}, &[-3.0, 3.0, NAN, -4.0, 4.0]);
    same(&gradient, &[0.0, 1.0, 1.0, 0.0, 1.0]);
}

#[test]
fn activations_neither_overflow_nor_cancel() {
    let x = [-400.0, 0.0, 400.0];
    close(
        &pointwise(&Op::Softplus { beta: 1.0, threshold: 20.0 }, &x).0,
        &[1.915_169_596_714_005_7e-174, 2f64.ln(), 400.0],
    );
    close(&pointwise(&Op::Sigmoid {}, &x).0, &[1.915_169_596_714_005_7e-174, 0.5, 1.0]);
    close(&pointwise(&Op::Silu {}, &x).0, &[-400.0 * 1.915_169_596_714_005_7e-174, 0.0, 400.0]);
    // −8·Φ(−8) = −8·6.220960574271785e-16: 1 + erf(−8/√2) would have lost every digit.
    let gelu = pointwise(&Op::Gelu { approximate: Gelu::None }, &[-8.0]).0;
    assert!((gelu[0] / (-8.0 * 6.220_960_574_271_785e-16) - 1.0).abs() < 1e-14, "{gelu:?}");
}

#[test]
fn extrema_keep_nan_and_share_ties() {
    let all = || Op::Amax { dims: vec![], keepdim: false };
    let (y, g) = apply(&all(), &[host(&[4], &[1.0, 3.0, 3.0, 0.0])]);
    same(&y[0].to_f64(), &[3.0]);
    same(g[0].as_ref().unwrap(), &[0.0, 0.5, 0.5, 0.0]);
    let (y, g) = apply(&all(), &[host(&[2], &[NAN, 1.0])]);
    same(&y[0].to_f64(), &[NAN]);
    same(g[0].as_ref().unwrap(), &[NAN, NAN]);

    let (a, b) = (host(&[4], &[NAN, 1.0, 2.0, 2.0]), host(&[4], &[1.0, NAN, 2.0, 3.0]));
    let (y, g) = apply(&Op::Maximum {}, &[a, b]);
    same(&y[0].to_f64(), &[NAN, NAN, 2.0, 3.0]);
    same(g[0].as_ref().unwrap(), &[1.0, 1.0, 0.5, 0.0]);
    same(g[1].as_ref().unwrap(), &[1.0, 1.0, 0.5, 1.0]);
}

#[test]
fn order_puts_nan_last_and_keeps_equals_in_place() {
    let x = || host(&[5], &[1.0, NAN, 3.0, NAN, 2.0]);
    let (y, _) = apply(&Op::Sort { dim: 0, descending: true }, &[x()]);
    assert_eq!(y[1].to_i64(), [1, 3, 2, 4, 0]);
    let (y, _) = apply(&Op::Sort { dim: 0, descending: false }, &[x()]);
    assert_eq!(y[1].to_i64(), [0, 4, 2, 1, 3]);
    let (y, _) = apply(&Op::Topk { k: 3, dim: 0, largest: true }, &[host(&[5], &[1.0, NAN, 3.0, 3.0, 2.0])]);
    assert_eq!(y[1].to_i64(), [1, 2, 3]);
    let (y, _) = apply(&Op::Argmax { dim: 0, keepdim: false }, &[host(&[5], &[1.0, 3.0, 3.0, NAN, NAN])]);
    assert_eq!(y[0].to_i64(), [3]);
    let (y, _) = apply(&Op::Argmax { dim: 0, keepdim: false }, &[host(&[3], &[1.0, 3.0, 3.0])]);
    assert_eq!(y[0].to_i64(), [1]);
}

#[test]
fn empty_and_degenerate_reductions() {
    let (y, g) = apply(&Op::Sum { dims: vec![0], keepdim: false }, &[host(&[0, 2], &[])]);
    same(&y[0].to_f64(), &[0.0, 0.0]);
    assert_eq!(g[0].as_ref().unwrap().len(), 0);
    let (y, _) = apply(&Op::Var { dims: vec![], correction: 1.0, keepdim: false }, &[host(&[1], &[5.0])]);
    same(&y[0].to_f64(), &[NAN]);
    let lse = Op::Logsumexp { dims: vec![], keepdim: false };
    let (y, g) = apply(&lse, &[host(&[2], &[-INF, -INF])]);
    same(&y[0].to_f64(), &[-INF]);
    same(g[0].as_ref().unwrap(), &[NAN, NAN]);
    let (y, g) = apply(&lse, &[host(&[2], &[INF, 1.0])]);
    same(&y[0].to_f64(), &[INF]);
    same(g[0].as_ref().unwrap(), &[NAN, 0.0]);
    same(&apply(&Op::Softmax { dim: 0 }, &[host(&[2], &[-INF, -INF])]).0[0].to_f64(), &[NAN, NAN]);
}

#[test]
fn long_sums_are_accurate() {
    // 1 followed by many terms below half its last place: a plain loop loses them all.
    let n = 1 << 16;
    let mut x = vec![1e-16; n];
    x[0] = 1.0;
    let exact = 1.0 + (n - 1) as f64 * 1e-16;
    let (y, _) = apply(&Op::Sum { dims: vec![], keepdim: false }, &[host(&[n], &x)]);
    assert!((y[0].to_f64()[0] - exact).abs() < 3e-16 * 8.0, "{:e}", y[0].to_f64()[0] - exact);
    let (y, _) = apply(&Op::Sum { dims: vec![0], keepdim: false }, &[host(&[n / 2, 2], &x)]);
    assert!((y[0].to_f64()[0] - (1.0 + (n / 2 - 1) as f64 * 1e-16)).abs() < 3e-15);
    let (y, _) = apply(&Op::Cumsum { dim: 0 }, &[host(&[n], &x)]);
    assert!((y[0].to_f64()[n - 1] - exact).abs() < 3e-16);
}

#[test]
fn a_fully_masked_attention_row_is_zero_without_gradient() {
    let q = host(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let k = host(&[2, 2], &[0.5, 0.25, -1.0, 1.0]);
    let v = host(&[2, 1], &[10.0, 20.0]);
    let mask = host(&[2, 2], &[0.0, -INF, -INF, -INF]);
    let op = Op::ScaledDotProductAttention { is_causal: false, scale: None };
    let (y, g) = apply(&op, &[q.clone(), k.clone(), v.clone(), mask]);
    same(&y[0].to_f64(), &[10.0, 0.0]);
    same(g[0].as_ref().unwrap(), &[0.0; 4]);
    same(g[2].as_ref().unwrap(), &[1.0, 0.0]);
    // The first query of a causal attention sees the first key only.
    let (y, _) = apply(&Op::ScaledDotProductAttention { is_causal: true, scale: None }, &[q, k, v]);
    assert_eq!(y[0].to_f64()[0], 10.0);
}

#[test]
fn ignored_samples_count_neither_in_the_loss_nor_in_its_gradient() {
    let cross =
        |label_smoothing, reduction| Op::CrossEntropy { ignore_index: -100, label_smoothing, reduction };
    let logits = host(&[2, 2], &[0.0, 3f64.ln(), 5.0, -7.0]);
    let (y, g) = apply(&cross(0.0, LossReduction::Mean), &[logits.clone(), indices(&[0, -100])]);
    close(&y[0].to_f64(), &[4f64.ln()]);
    close(g[0].as_ref().unwrap(), &[-0.75, 0.75, 0.0, 0.0]);
    let none = [logits.clone(), indices(&[-100, -100])];
    for smoothing in [0.0, 0.1] {
        let (y, g) = apply(&cross(smoothing, LossReduction::Mean), &none);
        same(&y[0].to_f64(), &[NAN]);
        same(g[0].as_ref().unwrap(), &[0.0; 4]);
    }
    let (y, _) = apply(&cross(0.0, LossReduction::Sum), &none);
    same(&y[0].to_f64(), &[0.0]);
    let wrong =
        apply_with(&ReferenceEngine::new(), &cross(0.0, LossReduction::Mean), &[logits, indices(&[0, 2])]);
    let message = wrong.unwrap_err().to_string();
    assert!(message.contains("index 2 is outside 0..2"), "{message}");
}

#[test]
fn indices_outside_their_dimension_are_errors() {
    let engine = ReferenceEngine::new();
    let x = || host(&[2, 1], &[1.0, 2.0]);
    let table = [
        (Op::Embedding {}, vec![x(), indices(&[2])]),
        (Op::IndexSelect { dim: 0 }, vec![x(), indices(&[-1])]),
        (Op::IndexPut { accumulate: true }, vec![x(), indices(&[-3]), host(&[1, 1], &[0.0])]),
    ];
    for (op, inputs) in table {
        assert!(apply_with(&engine, &op, &inputs).is_err(), "{op:?}");
    }
    let put = [host(&[3], &[1.0, 2.0, 3.0]), indices(&[0, 0, -1]), host(&[3], &[10.0, 20.0, 30.0])];
    let (y, g) = apply(&Op::IndexPut { accumulate: false }, &put);
    same(&y[0].to_f64(), &[20.0, 2.0, 30.0]);
    same(g[0].as_ref().unwrap(), &[0.0, 1.0, 0.0]);
    same(g[2].as_ref().unwrap(), &[1.0, 1.0, 1.0]);
}

#[test]
fn max_pooling_keeps_nan_and_sends_the_gradient_to_one_element() {
    let pool = Op::MaxPool2d {
        kernel_size: [2, 2],
        stride: [2, 2],
        padding: [0, 0],
        dilation: [1, 1],
        ceil_mode: false,
    };
    let table = [
        ([1.0, NAN, NAN, 4.0], NAN, [0.0, 0.0, 1.0, 0.0]),
        ([-INF; 4], -INF, [1.0, 0.0, 0.0, 0.0]),
        ([2.0, 5.0, 5.0, 1.0], 5.0, [0.0, 1.0, 0.0, 0.0]),
    ];
    for (x, y, dx) in table {
        let (found, g) = apply(&pool, &[host(&[1, 1, 2, 2], &x)]);
        same(&found[0].to_f64(), &[y]);
        same(g[0].as_ref().unwrap(), &dx);
    }
}

#[test]
fn negative_padding_crops() {
    let op = Op::Pad { pad: vec![-1, 2], value: 9.0 };
    let (y, g) = apply(&op, &[host(&[5], &[0.0, 1.0, 2.0, 3.0, 4.0])]);
    same(&y[0].to_f64(), &[1.0, 2.0, 3.0, 4.0, 9.0, 9.0]);
    same(g[0].as_ref().unwrap(), &[0.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn selection_keeps_what_is_not_selected_away() {
    let inputs = [mask(&[2], &[1.0, 0.0]), host(&[2], &[1.0, NAN]), host(&[2], &[INF, 2.0])];
    let (y, g) = apply(&Op::Where {}, &inputs);
    same(&y[0].to_f64(), &[1.0, 2.0]);
    same(g[1].as_ref().unwrap(), &[1.0, 0.0]);
    same(g[2].as_ref().unwrap(), &[0.0, 1.0]);
    let (y, _) = apply(&Op::MaskedFill { value: -1.0 }, &[host(&[2], &[NAN, 3.0]), mask(&[2], &[1.0, 0.0])]);
    same(&y[0].to_f64(), &[-1.0, 3.0]);
}

#[test]
fn a_large_mean_does_not_spoil_normalisation() {
    let x: Vec<f64> = (0..64).map(|i| 1e6 + f64::from(i % 2)).collect();
    let (y, _) = apply(&Op::LayerNorm { normalized_shape: vec![64], eps: 0.0 }, &[host(&[1, 64], &x)]);
    let expected: Vec<f64> = (0..64).map(|i| if i % 2 == 0 { -1.0 } else { 1.0 }).collect();
    same(&y[0].to_f64(), &expected);
}

#[test]
fn batch_norm_updates_its_statistics_with_the_unbiased_variance() {
    let op = Op::BatchNorm { training: true, momentum: 0.25, eps: 0.0 };
    let vector = |v: f64| host(&[1], &[v]);
    let x = host(&[4, 1], &[1.0, 3.0, 1.0, 3.0]);
    let (y, _) = apply(&op, &[x, vector(1.0), vector(0.0), vector(8.0), vector(4.0)]);
    same(&y[0].to_f64(), &[-1.0, 1.0, -1.0, 1.0]);
    close(&y[1].to_f64(), &[0.75 * 8.0 + 0.25 * 2.0]);
    close(&y[2].to_f64(), &[0.75 * 4.0 + 0.25 * (4.0 / 3.0)]);
}

#[test]
fn integers_move_like_floats() {
    let (y, _) = apply(&Op::Flip { dims: vec![0] }, &[indices(&[1, 2, 3])]);
    assert_eq!((y[0].dtype(), y[0].to_i64()), (DType::I64, vec![3, 2, 1]));
    let (y, _) = apply(&Op::Reshape { shape: vec![2, 1] }, &[mask(&[2], &[1.0, 0.0])]);
    assert_eq!((y[0].dtype(), y[0].shape()), (DType::U8, &[2, 1][..]));
}
