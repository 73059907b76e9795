//! Operators of the f64 reference beside libtorch's in f64, on the same cores.
//!
//! `cargo bench --features torch --bench reference`. Both engines run the same calls in
//! turns; the shortest of all rounds counts, so that a busy machine disturbs both alike and
//! little. `RAYON_NUM_THREADS` and `OMP_NUM_THREADS` set the threads of either side;
//! `PARITY_BENCH_ROUNDS` the rounds. Without the feature `torch` the reference runs alone.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::error::Error;
use std::time::Instant;

use tensor_parity::engine::reference::ReferenceEngine;
use tensor_parity::engine::torch::TorchEngine;
use tensor_parity::engine::{BackwardRequest, Call, DeviceSpec, Engine, Leaf};
use tensor_parity::numerics::DType;
use tensor_parity::program::{Op, Value, infer};
use tensor_parity::tensor::HostTensor;

/// An operator and the shapes of its inputs.
type Case = (&'static str, Op, &'static [&'static [usize]]);

fn cases() -> Vec<Case> {
    let conv = |stride, padding, groups| Op::Conv2d {
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [1, 1],
        groups,
    };
    let norm = |d| Op::LayerNorm { normalized_shape: vec![d], eps: 1e-5 };
    vec![
        ("mm 256", Op::Mm {}, &[&[256, 256], &[256, 256]]),
        ("mm 1024", Op::Mm {}, &[&[1024, 1024], &[1024, 1024]]),
        ("linear, 8 x 197 tokens, 192 to 768", Op::Linear {}, &[&[8, 197, 192], &[768, 192], &[768]]),
        ("linear, 8 x 197 tokens, 768 to 192", Op::Linear {}, &[&[8, 197, 768], &[192, 768], &[192]]),
        ("bmm, 24 of 197 x 64 x 197", Op::Bmm {}, &[&[24, 197, 64], &[24, 64, 197]]),
        (
            "attention, 8 x 3 heads, 197 tokens, 64",
            Op::ScaledDotProductAttention { is_causal: false, scale: None },
            &[&[8, 3, 197, 64], &[8, 3, 197, 64], &[8, 3, 197, 64]],
        ),
        ("conv 7x7 step 2, 3 to 64, 224", conv(2, 3, 1), &[&[4, 3, 224, 224], &[64, 3, 7, 7]]),
        ("conv 3x3, 64 to 64, 56", conv(1, 1, 1), &[&[4, 64, 56, 56], &[64, 64, 3, 3]]),
        ("conv 3x3, 256 to 256, 14", conv(1, 1, 1), &[&[4, 256, 14, 14], &[256, 256, 3, 3]]),
        ("conv 1x1, 64 to 256, 56", conv(1, 0, 1), &[&[4, 64, 56, 56], &[256, 64, 1, 1]]),
        ("conv 3x3, 64 groups, 56", conv(1, 1, 64), &[&[4, 64, 56, 56], &[64, 1, 3, 3]]),
        ("conv 16x16 step 16, 3 to 192, 224", conv(16, 0, 1), &[&[8, 3, 224, 224], &[192, 3, 16, 16]]),
        ("layer_norm, 8 x 197 x 192", norm(192), &[&[8, 197, 192], &[192], &[192]]),
        ("layer_norm, 8 x 197 x 768", norm(768), &[&[8, 197, 768], &[768], &[768]]),
    ]
}

/// Values between −1 and 1.
fn draw(shape: &[usize], key: u64) -> Result<HostTensor, Box<dyn Error>> {
    let mut state = key;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / 2f64.powi(52) - 1.0
    };
    let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|_| next()).collect();
    Ok(HostTensor::from_f64(DType::F64, shape.to_vec(), &values)?)
}

/// One operator on one engine, inputs and incoming gradient in place.
struct Side<E: Engine> {
    engine: E,
    op: Op,
    types: Vec<Value>,
    inputs: Vec<E::Tensor>,
    incoming: E::Tensor,
    outputs: Vec<Value>,
}

impl<E: Engine> Side<E> {
    fn new(engine: E, op: &Op, shapes: &[&[usize]]) -> Result<Self, Box<dyn Error>> {
        let types: Vec<Value> =
            shapes.iter().map(|s| Value { shape: s.to_vec(), dtype: DType::F64 }).collect();
        let outputs = infer(op, &types.iter().collect::<Vec<_>>()).map_err(|e| e.reason)?;
        let inputs = shapes
            .iter()
            .enumerate()
            .map(|(i, shape)| Ok(engine.upload(&draw(shape, i as u64 + 1)?, Leaf::Differentiable)?))
            .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        let incoming = engine.upload(&draw(&outputs[0].shape, 99)?, Leaf::Constant)?;
        Ok(Self { engine, op: op.clone(), types, inputs, incoming, outputs })
    }

    fn call(&self, op: &Op, types: &[&Value], inputs: &[&E::Tensor]) -> Result<E::Tensor, Box<dyn Error>> {
        let outputs = infer(op, types).map_err(|e| e.reason)?;
        let outputs: Vec<&Value> = outputs.iter().collect();
        let call = Call { op, inputs: types, outputs: &outputs, node: 0, path: "" };
        self.engine.apply(&call, inputs)?.into_iter().next().ok_or_else(|| "no result".into())
    }

    /// Seconds of the forward and of the backward computation.
    fn round(&self) -> Result<[f64; 2], Box<dyn Error>> {
        let types: Vec<&Value> = self.types.iter().collect();
        let inputs: Vec<&E::Tensor> = self.inputs.iter().collect();
        let start = Instant::now();
        let y = self.call(&self.op, &types, &inputs)?;
        let forward = start.elapsed().as_secs_f64();
        let out = &self.outputs[0];
        let weighed = self.call(&Op::Mul {}, &[out, out], &[&y, &self.incoming])?;
        let loss = self.call(&Op::Sum { dims: vec![], keepdim: false }, &[out], &[&weighed])?;
        let start = Instant::now();
        let found = self.engine.backward(&BackwardRequest { loss: &loss, wrt: &inputs })?;
        let backward = start.elapsed().as_secs_f64();
        assert!(found.iter().all(Option::is_some), "every input has a gradient");
        Ok([forward, backward])
    }
}

fn shorter(best: &mut [f64; 2], round: [f64; 2]) {
    for (best, time) in best.iter_mut().zip(round) {
        if time < *best {
            *best = time;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::var("PARITY_BENCH_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(15);
    println!("milliseconds: reference, libtorch, ratio; forward | backward");
    for (name, op, shapes) in cases() {
        let reference = Side::new(ReferenceEngine::new(), &op, shapes)?;
        let torch = match TorchEngine::new(&DeviceSpec::CPU) {
            Ok(engine) => Some(Side::new(engine, &op, shapes)?),
            Err(_) => None,
        };
        let (mut ours, mut theirs) = ([f64::INFINITY; 2], [f64::INFINITY; 2]);
        for _ in 0..rounds {
            shorter(&mut ours, reference.round()?);
            if let Some(torch) = &torch {
                shorter(&mut theirs, torch.round()?);
            }
        }
        let cell =
            |i: usize| format!("{:8.2} {:8.2} {:5.2}", ours[i] * 1e3, theirs[i] * 1e3, ours[i] / theirs[i]);
        println!("{name:42} {} | {}", cell(0), cell(1));
    }
    Ok(())
}
