//! Simulated rounding, and that without it nothing is random.

use std::sync::Arc;

use super::{gradient, host, pass};
use crate::conformance::cases;
use crate::engine::interpreter::PassOutput;
use crate::engine::reference::{NoiseSpec, ReferenceEngine};
use crate::numerics::{DType, ErrorModel, FloatFormat, Role};
use crate::program::{Builder, Op, Program};
use crate::tensor::HostTensor;

fn noisy(replica: u64) -> ReferenceEngine {
    ReferenceEngine::with_noise(NoiseSpec {
        model: ErrorModel::default(),
        formats: Arc::new(|dtype, _| FloatFormat::of(dtype)),
        seed: 1,
        replica,
    })
}

/// Values between −1 and 1 with a variance of 1/3, independent enough that the terms of a
/// product neither cancel nor add up.
fn values(n: usize, key: usize) -> Vec<f64> {
    let mut state = key as u64 + 1;
    let draw = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..n).map(draw).collect()
}

fn inputs(program: &Program) -> Vec<HostTensor> {
    let tensor = |(key, input): (usize, &crate::program::ProgramInput)| {
        let value = program.value(input.value);
        let n = value.shape.iter().product();
        HostTensor::from_f64(value.dtype, value.shape.clone(), &values(n, key)).unwrap()
    };
    program.inputs.iter().enumerate().map(tensor).collect()
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    norm(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
}

/// Every number of a pass.
fn everything(out: &PassOutput) -> Vec<u8> {
    let tensors = out.loss.iter().chain(out.activations.iter().map(|(_, t)| t));
    let gradients = out.parameter_gradients.iter().chain(&out.input_gradients);
    let mut bytes: Vec<u8> = tensors.flat_map(|t| t.bytes().to_vec()).collect();
    for (name, _) in gradients {
        bytes.extend(gradient(out, name).unwrap_or_default().iter().flat_map(|v| v.to_le_bytes()));
    }
    bytes
}

/// Token embedding, attention with key bias, feed-forward: large enough to be split.
fn block() -> Program {
    let (tokens, d) = (96, 64);
    let mut b = Builder::new("block");
    let x = b.batch_input("x", &[2, tokens, d]);
    let linear = |b: &mut Builder, x, name: &str, outs: usize, ins: usize| {
        let weight = b.parameter(&format!("{name}.weight"), &[outs, ins]);
        let bias = b.parameter(&format!("{name}.bias"), &[outs]);
        b.apply(Op::Linear {}, &[x, weight, bias])
    };
    let q = linear(&mut b, x, "query", d, d);
    let k = linear(&mut b, x, "key", d, d);
    let v = linear(&mut b, x, "value", d, d);
    let attention = Op::ScaledDotProductAttention { is_causal: false, scale: Some(0.02) };
    let y = b.module("attention", |b| b.apply(attention, &[q, k, v]));
    let y = b.apply(Op::Add {}, &[x, y]);
    let weight = b.parameter("norm.weight", &[d]);
    let bias = b.parameter("norm.bias", &[d]);
    let y = b.apply(Op::LayerNorm { normalized_shape: vec![d], eps: 1e-5 }, &[y, weight, bias]);
    let y = linear(&mut b, y, "up", 256, d);
    let y = b.module("hidden", |b| b.apply(Op::Gelu { approximate: crate::program::Gelu::None }, &[y]));
    let scale = b.batch_input("scale", &[2, tokens, 256]);
    let y = b.apply(Op::Mul {}, &[y, scale]);
    let loss = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[y]);
    b.set_loss(loss);
    b.finish().unwrap()
}

#[test]
fn runs_are_bit_identical_whatever_the_number_of_threads() {
    let program = block();
    let inputs = inputs(&program);
    for engine in [ReferenceEngine::new(), noisy(3)] {
        let first = everything(&pass(&engine, &program, &inputs));
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let again = pool.install(|| everything(&pass(&engine, &program, &inputs)));
            assert!(first == again, "{threads} threads");
        }
    }
}

#[test]
fn small_cases_are_bit_identical_between_runs() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for case in cases() {
        let program = case.program().unwrap();
        let inputs = case.host_inputs(5).unwrap();
        let engine = ReferenceEngine::new();
        let first = everything(&pass(&engine, &program, &inputs));
        let again = pool.install(|| everything(&pass(&engine, &program, &inputs)));
        assert!(first == again, "{}", case.name);
    }
}

/// One operator in `dtype` on large inputs, result captured, loss weighed by an input.
fn single(op: Op, shapes: &[&[usize]], dtype: DType) -> Program {
    let mut b = Builder::new("single");
    let inputs: Vec<_> = shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| b.input(&format!("x{i}"), crate::program::InputKind::Batch, shape, dtype, |_| {}))
        .collect();
    let y = b.module("y", |b| b.apply(op, &inputs));
    let shape = b.shape(y).to_vec();
    let weight = b.input("weight", crate::program::InputKind::Buffer, &shape, dtype, |_| {});
    let loss = b.apply(Op::Mul {}, &[y, weight]);
    let loss = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[loss]);
    b.set_loss(loss);
    b.finish().unwrap()
}

/// Operator, input shapes, and what the model says of it.
type Row<'a> = (Op, &'a [&'a [usize]], Role, usize, ErrorModel);

#[test]
fn the_deviation_of_one_operator_is_its_eta() {
    let model = ErrorModel::default();
    let bare = ErrorModel { fn_ulp: 0.0, ..model };
    let table: [Row; 7] = [
        (Op::Mm {}, &[&[64, 256], &[256, 48]], Role::Matmul, 256, model),
        (Op::Linear {}, &[&[100, 64], &[80, 64], &[80]], Role::Matmul, 64, model),
        (Op::Tanh {}, &[&[5000]], Role::Elementwise, 1, model),
        (Op::Add {}, &[&[5000], &[5000]], Role::Elementwise, 1, bare),
        (Op::Softmax { dim: -1 }, &[&[50, 100]], Role::Softmax, 100, model),
        (
            Op::LayerNorm { normalized_shape: vec![64], eps: 1e-5 },
            &[&[80, 64]],
            Role::Normalisation,
            64,
            model,
        ),
        (Op::Mean { dims: vec![1], keepdim: false }, &[&[2000, 100]], Role::Reduction, 100, model),
    ];
    for dtype in [DType::F32, DType::BF16] {
        for (op, shapes, role, n, model) in &table {
            let program = single(op.clone(), shapes, dtype);
            let inputs = inputs(&program);
            let result = |engine: &ReferenceEngine| pass(engine, &program, &inputs).activations[0].1.to_f64();
            let exact = result(&ReferenceEngine::new());
            let found = distance(&result(&noisy(0)), &exact) / norm(&exact);
            let mut expected = model.eta(*role, *n, &FloatFormat::of(dtype));
            if *role == Role::Reduction {
                // Accumulation is relative to the terms where they cancel.
                let format = FloatFormat { u_store: 0.0, ..FloatFormat::of(dtype) };
                let x = inputs[0].to_f64();
                let terms = norm(&x) / 100.0;
                let scale = if terms > norm(&exact) { terms } else { norm(&exact) };
                let accumulate = model.eta(*role, *n, &format);
                expected = (expected - accumulate) + accumulate * scale / norm(&exact);
            }
            let ratio = found / expected;
            assert!((0.8..1.2).contains(&ratio), "{op:?} {dtype}: {found:e} against {expected:e}");
        }
    }
}

#[test]
fn exact_operators_add_nothing_but_sums_of_cotangents_do() {
    let program = single(Op::Expand { shape: vec![500, 40] }, &[&[40]], DType::F32);
    let inputs = inputs(&program);
    let exact = pass(&ReferenceEngine::new(), &program, &inputs);
    let found = pass(&noisy(0), &program, &inputs);
    assert_eq!(found.activations[0].1.to_f64(), exact.activations[0].1.to_f64());
    let (g, noisy_g) = (gradient(&exact, "x0").unwrap(), gradient(&found, "x0").unwrap());
    let relative = distance(&g, &noisy_g) / norm(&g);
    assert!(relative > 1e-8 && relative < 1e-4, "{relative:e}");
}

#[test]
fn replicas_differ_and_repeat() {
    let program = single(Op::Tanh {}, &[&[100]], DType::F32);
    let inputs = inputs(&program);
    let run = |replica| everything(&pass(&noisy(replica), &program, &inputs));
    assert!(run(0) == run(0) && run(0) != run(1));
}

#[test]
fn a_structurally_zero_gradient_has_a_floor_that_is_not_zero() {
    let program = block();
    let inputs = inputs(&program);
    let exact = pass(&ReferenceEngine::new(), &program, &inputs);
    let zero = norm(&gradient(&exact, "key.bias").unwrap());
    let query = norm(&gradient(&exact, "query.bias").unwrap());
    let replicas: Vec<f64> = (0..4)
        .map(|replica| {
            let found = pass(&noisy(replica), &program, &inputs);
            distance(&gradient(&found, "key.bias").unwrap(), &gradient(&exact, "key.bias").unwrap())
        })
        .collect();
    assert!(zero < 1e-10 * query, "{zero:e} {query:e}");
    // About the roundoff of f32 times the terms, of the order of the query bias's gradient.
    for floor in &replicas {
        assert!(*floor > 1e-9 * query && *floor < 1e-4 * query, "{replicas:?} {query:e}");
    }
}

#[test]
fn a_sum_that_cancels_keeps_the_error_of_its_terms() {
    let program = single(Op::Sum { dims: vec![0], keepdim: false }, &[&[1000, 1]], DType::F32);
    let alternating: Vec<f64> = (0..1000).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let inputs = [
        HostTensor::from_f64(DType::F32, vec![1000, 1], &alternating).unwrap(),
        HostTensor::from_f64(DType::F32, vec![1], &[1.0]).unwrap(),
    ];
    let squares: f64 = (0..200)
        .map(|replica| pass(&noisy(replica), &program, &inputs).activations[0].1.to_f64()[0].powi(2))
        .sum();
    let expected = 0.30 * 1000f64.sqrt() * DType::F32.unit_roundoff() * 1000f64.sqrt();
    let ratio = (squares / 200.0).sqrt() / expected;
    assert!((0.8..1.2).contains(&ratio), "{ratio}");
}

#[test]
fn below_the_normal_range_values_are_whole_numbers_of_subnormal_steps() {
    let program = single(Op::MulScalar { value: 0.737 }, &[&[1000]], DType::F16);
    let step = 2f64.powi(-24);
    let whole: Vec<f64> = (1..=1000).map(|i| f64::from(i) * step).collect();
    let tiny: Vec<f64> = whole.iter().map(|v| v * 0.737).collect();
    let x = HostTensor::from_f64(DType::F16, vec![1000], &whole).unwrap();
    let weight = host(&[1000], &vec![1.0; 1000]).cast(DType::F16);
    let found = pass(&noisy(0), &program, &[x, weight]).activations[0].1.to_f64();
    assert!(found.iter().zip(&tiny).all(|(f, v)| (f - v).abs() <= 0.51 * step));
    assert!(found.iter().all(|f| (f / step).fract() == 0.0));
    let deviation = distance(&found, &tiny) / 1000f64.sqrt();
    assert!((deviation / (step / 12f64.sqrt()) - 1.0).abs() < 0.05, "{deviation:e}");
}

#[test]
fn infinities_stay_what_they_are() {
    let program = single(Op::Exp {}, &[&[3]], DType::F32);
    let x = HostTensor::from_f64(DType::F32, vec![3], &[f64::INFINITY, f64::NAN, 0.0]).unwrap();
    let weight = HostTensor::from_f64(DType::F32, vec![3], &[1.0; 3]).unwrap();
    let found = pass(&noisy(0), &program, &[x, weight]).activations[0].1.to_f64();
    assert!(found[0] == f64::INFINITY && found[1].is_nan() && (found[2] - 1.0).abs() < 1e-5);
}

#[test]
fn equal_values_get_equal_errors_and_a_sum_over_them_keeps_the_error() {
    let program = single(Op::Expand { shape: vec![784, 4] }, &[&[4]], DType::F32);
    let inputs = inputs(&program);
    // A mean over 784 positions hands 1/784 of its gradient to each: one rounding, 784 times.
    let mut b = Builder::new("mean");
    let x = b.batch_input("x", &[784, 4]);
    let bias = b.parameter("bias", &[4]);
    let y = b.apply(Op::Add {}, &[x, bias]);
    let y = b.apply(Op::Mean { dims: vec![0], keepdim: false }, &[y]);
    let weight = b.batch_input("weight", &[4]);
    let y = b.apply(Op::Mul {}, &[y, weight]);
    let loss = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[y]);
    b.set_loss(loss);
    let mean = b.finish().unwrap();
    let found = pass(&noisy(0), &program, &inputs).activations[0].1.to_f64();
    assert!(found.chunks(4).all(|row| row == &found[..4]), "copies stay copies");

    let inputs = self::inputs(&mean);
    let exact = gradient(&pass(&ReferenceEngine::new(), &mean, &inputs), "bias").unwrap();
    let squares: f64 = (0..64)
        .map(|replica| {
            let found = gradient(&pass(&noisy(replica), &mean, &inputs), "bias").unwrap();
            distance(&found, &exact).powi(2)
        })
        .sum();
    // A plain loop over 784 equal terms loses up to 0.15·784·u; independent errors would
    // leave 0.30·√784·u.
    let coherent = 0.15 * 784.0 * DType::F32.unit_roundoff() * norm(&exact);
    let ratio = (squares / 64.0).sqrt() / coherent;
    assert!((0.8..1.2).contains(&ratio), "{ratio}");
}

/// What may cancel, and where the error then still is: floors of a result that vanishes.
#[test]
fn products_that_cancel_keep_the_error_of_their_terms() {
    let k = 256;
    let alternating: Vec<f64> = (0..k).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let ones = vec![1.0; k];
    let conv = Op::Conv1d { stride: 1, padding: 0, dilation: 1, groups: 1 };
    let table: [(Op, [&[usize]; 2]); 4] = [
        (Op::Mm {}, [&[1, k], &[k, 1]]),
        (Op::Linear {}, [&[1, k], &[1, k]]),
        (Op::Matmul {}, [&[1, k], &[k, 1]]),
        (conv, [&[1, k, 1], &[1, k, 1]]),
    ];
    let expected = 0.30 * 16.0 * DType::F32.unit_roundoff() * 16.0;
    for (op, shapes) in table {
        let program = single(op.clone(), &shapes, DType::F32);
        let tensor = |shape: &[usize], values: &[f64]| {
            HostTensor::from_f64(DType::F32, shape.to_vec(), values).unwrap()
        };
        let weight_shape = program.value(program.inputs[2].value).shape.clone();
        let inputs =
            [tensor(shapes[0], &alternating), tensor(shapes[1], &ones), tensor(&weight_shape, &[1.0])];
        let squares: f64 = (0..200)
            .map(|replica| pass(&noisy(replica), &program, &inputs).activations[0].1.to_f64()[0].powi(2))
            .sum();
        let ratio = (squares / 200.0).sqrt() / expected;
        assert!((0.8..1.2).contains(&ratio), "{op:?}: {ratio}");
    }
}

/// Attention of one head whose keys get a bias, which has no gradient in exact arithmetic: a
/// fused kernel's is what it lost between the products.
struct BiasedAttention {
    dtype: DType,
    /// Size of queries; keys are smaller by as much, so that the scores stay moderate.
    query: f64,
    /// What all values have in common.
    value: f64,
    /// Size of the incoming gradient.
    gradient: f64,
}

impl BiasedAttention {
    const TOKENS: usize = 64;
    const WIDTH: usize = 16;

    fn program(&self) -> Program {
        let mut b = Builder::new("biased attention");
        let shape = [Self::TOKENS, Self::WIDTH];
        let input = |b: &mut Builder, name: &str, shape: &[usize]| {
            b.input(name, crate::program::InputKind::Parameter, shape, self.dtype, |_| {})
        };
        let [q, k, v] = ["q", "k", "v"].map(|name| input(&mut b, name, &shape));
        let bias = input(&mut b, "bias", &[Self::WIDTH]);
        let k = b.apply(Op::Add {}, &[k, bias]);
        let y = b.apply(Op::ScaledDotProductAttention { is_causal: false, scale: None }, &[q, k, v]);
        let weight = input(&mut b, "weight", &shape);
        let weighted = b.apply(Op::Mul {}, &[y, weight]);
        let loss = b.apply(Op::Sum { dims: vec![], keepdim: false }, &[weighted]);
        b.set_loss(loss);
        b.finish().unwrap()
    }

    /// Queries, keys, values, bias, incoming gradient.
    fn inputs(&self) -> Vec<HostTensor> {
        let n = Self::TOKENS * Self::WIDTH;
        let made = |n: usize, key: usize, size: f64, common: f64| {
            let shape = if n == Self::WIDTH { vec![n] } else { vec![Self::TOKENS, Self::WIDTH] };
            let values: Vec<f64> = values(n, key).iter().map(|v| v * size + common).collect();
            HostTensor::from_f64(self.dtype, shape, &values).unwrap()
        };
        vec![
            made(n, 0, self.query, 0.0),
            made(n, 1, 1.0 / self.query, 0.0),
            made(n, 2, 1.0, self.value),
            made(Self::WIDTH, 3, 0.0, 0.0),
            made(n, 4, self.gradient, 0.0),
        ]
    }

    /// The gradient of the bias with everything wide but the result and the operands of the
    /// products, as fused kernels hold them.
    fn fused(&self) -> Vec<f64> {
        let inputs = self.inputs();
        let [q, k, v, g] = [0, 1, 2, 4].map(|i| inputs[i].to_f64());
        let narrow = |x: f64| HostTensor::from_f64(self.dtype, vec![1], &[x]).unwrap().to_f64()[0];
        let at = |x: &[f64], row: usize, column: usize| x[row * Self::WIDTH + column];
        let dot = |a: &[f64], i: usize, b: &[f64], j: usize| -> f64 {
            (0..Self::WIDTH).map(|c| at(a, i, c) * at(b, j, c)).sum()
        };
        let scale = 1.0 / (Self::WIDTH as f64).sqrt();
        let mut gradient = vec![0.0; Self::WIDTH];
        for row in 0..Self::TOKENS {
            let scores: Vec<f64> = (0..Self::TOKENS).map(|j| (dot(&q, row, &k, j) * scale).exp()).collect();
            let total: f64 = scores.iter().sum();
            let p: Vec<f64> = scores.iter().map(|s| s / total).collect();
            let stored =
                |c: usize| narrow(p.iter().enumerate().map(|(j, p)| narrow(*p) * at(&v, j, c)).sum());
            let mean: f64 = (0..Self::WIDTH).map(|c| at(&g, row, c) * stored(c)).sum();
            let ds: f64 = p.iter().enumerate().map(|(j, p)| narrow(p * (dot(&g, row, &v, j) - mean))).sum();
            for (c, out) in gradient.iter_mut().enumerate() {
                *out += ds * at(&q, row, c) * scale;
            }
        }
        gradient
    }

    /// What a fused kernel loses, in predicted floors.
    fn ratio(&self) -> f64 {
        let (program, inputs) = (self.program(), self.inputs());
        let bias = |engine: &ReferenceEngine| gradient(&pass(engine, &program, &inputs), "bias").unwrap();
        let exact = bias(&ReferenceEngine::new());
        let replicas = 16;
        let squares: f64 = (0..replicas).map(|r| distance(&bias(&noisy(r)), &exact).powi(2)).sum();
        let floor = (squares / replicas as f64).sqrt();
        let lost = norm(&self.fused());
        assert!(norm(&exact) < 1e-6 * lost, "{:e} of {lost:e}", norm(&exact));
        lost / floor
    }
}

#[test]
fn attentions_row_sums_are_taken_from_the_stored_result() {
    let values_in_common = BiasedAttention { dtype: DType::BF16, query: 1.0, value: 16.0, gradient: 1.0 };
    let ratio = values_in_common.ratio();
    assert!((0.3..3.0).contains(&ratio), "{ratio}");
}

#[test]
fn what_attention_stores_between_its_products_is_rounded_subnormal_or_not() {
    let subnormal = BiasedAttention { dtype: DType::F16, query: 64.0, value: 0.0, gradient: 1e-5 };
    let ratio = subnormal.ratio();
    assert!((0.3..3.0).contains(&ratio), "{ratio}");
}
