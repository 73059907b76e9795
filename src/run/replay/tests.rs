//! Correct engines are within at every node; a fault is found at its node and nowhere else.

use std::cell::Cell;

use super::{Direction, Part, ReferenceValues, ReplayJudge, Replayed, replay};
use crate::conformance::floor::Rounding;
use crate::conformance::{Bands, Fault, Multiples};
use crate::engine::candle::CandleEngine;
use crate::engine::reference::ReferenceEngine;
use crate::engine::torch::TorchEngine;
use crate::engine::{BackwardRequest, Call, DeviceSpec, Engine, EngineError};
use crate::numerics::{DType, ErrorModel, FloatFormat, Role};
use crate::precision::{Precision, rewrite};
use crate::program::{Builder, Gelu, InputKind, LossReduction, Op, Program};
use crate::run::hooks::{Hook, Hooked};
use crate::run::plant::Planted;
use crate::tensor::HostTensor;
use crate::trace::Phase;

/// Multiples that do not depend on a policy file.
struct Fixed;

impl Bands for Fixed {
    fn isolated(&self, role: Role, _: DType) -> Multiples {
        match role {
            Role::Exact => Multiples { pass: 0.0, fail: 0.0 },
            _ => Multiples { pass: 3.0, fail: 6.0 },
        }
    }

    fn tail(&self) -> f64 {
        1e-7
    }
}

/// A classifier of sequences: embedding, attention, normalisation, feed-forward, loss.
fn classifier() -> Program {
    let (batch, tokens, width, vocabulary, classes) = (3, 7, 16, 11, 5);
    let mut b = Builder::new("classifier");
    let ids = b.batch_indices("ids", &[batch, tokens], vocabulary);
    let labels = b.labels("labels", &[batch], classes);
    let table = b.parameter("table", &[vocabulary, width]);
    let x = b.module("embedding", |b| b.apply(Op::Embedding {}, &[table, ids]));
    let linear = |b: &mut Builder, x, name: &str, outs: usize, ins: usize| {
        let weight = b.parameter(&format!("{name}.weight"), &[outs, ins]);
        let bias = b.parameter(&format!("{name}.bias"), &[outs]);
        b.module(name, |b| b.apply(Op::Linear {}, &[x, weight, bias]))
    };
    let q = linear(&mut b, x, "query", width, width);
    let k = linear(&mut b, x, "key", width, width);
    let v = linear(&mut b, x, "value", width, width);
    let attention = Op::ScaledDotProductAttention { is_causal: false, scale: None };
    let y = b.module("attention", |b| b.apply(attention, &[q, k, v]));
    let x = b.module("residual", |b| b.apply(Op::Add {}, &[x, y]));
    let weight = b.parameter("norm.weight", &[width]);
    let bias = b.parameter("norm.bias", &[width]);
    let norm = Op::LayerNorm { normalized_shape: vec![width], eps: 1e-5 };
    let x = b.module("norm", |b| b.apply(norm, &[x, weight, bias]));
    let x = linear(&mut b, x, "up", 32, width);
    let x = b.module("gelu", |b| b.apply(Op::Gelu { approximate: Gelu::None }, &[x]));
    let x = linear(&mut b, x, "down", width, 32);
    let x = b.module("mean", |b| b.apply(Op::Mean { dims: vec![1], keepdim: false }, &[x]));
    let logits = linear(&mut b, x, "head", classes, width);
    b.set_logits(logits);
    let loss = Op::CrossEntropy { ignore_index: -100, label_smoothing: 0.0, reduction: LossReduction::Mean };
    let loss = b.module("loss", |b| b.apply(loss, &[logits, labels]));
    b.set_loss(loss);
    b.finish().unwrap()
}

/// Values of an input: between −1 and 1, or legal indices.
fn tensor(program: &Program, name: &str) -> Option<HostTensor> {
    let at = program.inputs.iter().position(|input| input.name == name)?;
    let input = &program.inputs[at];
    let value = program.value(input.value);
    let mut state = at as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let draws: Vec<u64> = (0..value.shape.iter().product::<usize>()).map(|_| next()).collect();
    let values: Vec<f64> = match input.below {
        Some(below) => draws.iter().map(|d| (d % below as u64) as f64).collect(),
        None => draws.iter().map(|d| *d as f64 / f64::from(1 << 30) - 1.0).collect(),
    };
    HostTensor::from_f64(value.dtype, value.shape.clone(), &values).ok()
}

/// Every node of the classifier in `precision` on `engine`.
fn replayed(engine: &impl Engine, precision: Precision) -> (Program, Vec<Replayed>) {
    let program = rewrite(&classifier(), precision).unwrap();
    let values = ReferenceValues::of(&program, &|name| tensor(&program, name)).unwrap();
    let formats = |dtype, _| FloatFormat::of(dtype);
    let rounding = Rounding { model: ErrorModel::default(), formats: &formats };
    let found = replay(engine, &program, &values, &ReplayJudge { rounding, bands: &Fixed });
    assert_eq!(found.len(), program.nodes.len());
    (program, found)
}

fn wrong(replayed: &[Replayed]) -> Vec<usize> {
    replayed.iter().filter(|r| r.is_wrong()).map(|r| r.node).collect()
}

fn candle() -> CandleEngine {
    CandleEngine::new(&DeviceSpec::CPU).unwrap()
}

#[test]
fn correct_engines_are_within_at_every_node() {
    let (_, found) = replayed(&candle(), Precision::F32);
    assert_eq!(wrong(&found), [0; 0], "candle: {found:#?}");
    assert!(found.iter().all(|r| r.forward == Direction::Ran && r.backward == Direction::Ran), "{found:#?}");
    assert!(found.iter().all(|r| r.deviations.iter().all(|d| d.error <= 6.0 * d.floor)), "{found:#?}");
    if let Ok(torch) = TorchEngine::new(&DeviceSpec::CPU) {
        for precision in [Precision::F32, Precision::F64] {
            let (_, found) = replayed(&torch, precision);
            assert_eq!(wrong(&found), [0; 0], "libtorch {precision}: {found:#?}");
        }
    }
}

/// On the CPU libtorch 2.11 adds up the gradients of a layer norm's weight and bias in the
/// 16-bit type: bit for bit a plain loop in it. Replay finds that by itself, and nothing else.
#[cfg(feature = "torch")]
#[test]
fn sums_in_sixteen_bits_are_found_in_the_layer_norm_of_libtorch_alone() {
    let torch = TorchEngine::new(&DeviceSpec::CPU).unwrap();
    for precision in [Precision::Bf16, Precision::F16] {
        let (program, found) = replayed(&torch, precision);
        let norm = |r: &Replayed| matches!(program.nodes[r.node].op, Op::LayerNorm { .. });
        assert!(found.iter().filter(|r| r.is_wrong()).all(norm), "{precision}: {found:#?}");
        assert!(found.iter().filter(|r| norm(r)).all(|r| r.forward == Direction::Ran));
        if precision == Precision::Bf16 {
            let bias = found.iter().filter(|r| norm(r)).flat_map(|r| &r.deviations);
            let bias = bias.filter(|d| d.part == Part::Gradient(2)).map(|d| d.judgement.fault);
            assert_eq!(bias.collect::<Vec<_>>(), [Some(Fault::Value)]);
        }
    }
}

#[test]
fn the_reference_against_itself_deviates_nowhere() {
    let (_, found) = replayed(&ReferenceEngine::new(), Precision::F64);
    assert!(found.iter().all(|r| r.floors() == 0.0), "{found:#?}");
}

#[test]
fn every_operator_is_located_when_its_result_is_off_by_a_thousandth() {
    let engine = candle();
    for node in 0..classifier().nodes.len() {
        let plant = format!("scale:1e-3:{node}").parse().unwrap();
        let hooked = Hooked { engine: &engine, hook: Planted::new(&plant, &classifier()).unwrap() };
        let (program, found) = replayed(&hooked, Precision::F32);
        assert_eq!(wrong(&found), [node], "{}: {found:#?}", program.describe_node(node));
        let worst = found.iter().max_by(|a, b| a.floors().total_cmp(&b.floors())).unwrap();
        assert_eq!(worst.node, node);
    }
}

/// The gradient of the last argument of one node is off by a thousandth.
struct WrongGradient {
    node: usize,
    current: Cell<Option<usize>>,
}

impl<E: Engine> Hook<E> for WrongGradient {
    fn apply(
        &self,
        engine: &E,
        call: &Call<'_>,
        inputs: &[&E::Tensor],
    ) -> Result<Vec<E::Tensor>, EngineError> {
        // The node comes first; what follows weighs its results.
        if self.current.get().is_none() {
            self.current.set(Some(call.node));
        }
        engine.apply(call, inputs)
    }

    fn mark(&self, phase: Phase, _: Option<usize>) {
        if phase == Phase::Forward {
            self.current.set(None);
        }
    }

    fn backward(
        &self,
        engine: &E,
        request: &BackwardRequest<'_, E::Tensor>,
    ) -> Result<Vec<Option<E::Tensor>>, EngineError> {
        let mut found = engine.backward(request)?;
        if self.current.get() == Some(self.node)
            && let Some(Some(last)) = found.last_mut()
        {
            let host = engine.download(last)?;
            let values: Vec<f64> = host.to_f64().iter().map(|v| v * 1.001).collect();
            let wrong = HostTensor::from_f64(host.dtype(), host.shape().to_vec(), &values).unwrap();
            *last = engine.upload(&wrong, crate::engine::Leaf::Constant)?;
        }
        Ok(found)
    }
}

#[test]
fn a_wrong_gradient_is_located_although_every_result_is_right() {
    let engine = candle();
    let program = classifier();
    let norm = program.nodes.iter().position(|node| matches!(node.op, Op::LayerNorm { .. })).unwrap();
    let hooked = Hooked { engine: &engine, hook: WrongGradient { node: norm, current: Cell::new(None) } };
    let (_, found) = replayed(&hooked, Precision::F32);
    assert_eq!(wrong(&found), [norm]);
    let outside: Vec<Part> = found[norm]
        .deviations
        .iter()
        .filter(|d| d.judgement.fault == Some(Fault::Value))
        .map(|d| d.part)
        .collect();
    assert_eq!(outside, [Part::Gradient(2)], "the bias");
}

/// An engine without gradients.
struct Severed;

impl<E: Engine> Hook<E> for Severed {
    fn backward(
        &self,
        _: &E,
        request: &BackwardRequest<'_, E::Tensor>,
    ) -> Result<Vec<Option<E::Tensor>>, EngineError> {
        Ok(vec![None; request.wrt.len()])
    }
}

#[test]
fn a_gradient_that_is_not_delivered_is_no_agreement() {
    let engine = candle();
    let (_, found) = replayed(&Hooked { engine: &engine, hook: Severed }, Precision::F32);
    assert_eq!(wrong(&found).len(), found.len());
    let gradients = found[0].deviations.iter().filter(|d| matches!(d.part, Part::Gradient(_)));
    for gradient in gradients {
        assert_eq!(gradient.judgement.fault, Some(Fault::NoGradient));
        assert!(gradient.error.is_nan());
    }
}

#[test]
fn values_of_another_program_replay_nothing() {
    let (program, judge) = (
        classifier(),
        Rounding { model: ErrorModel::default(), formats: &|dtype, _| FloatFormat::of(dtype) },
    );
    let judge = ReplayJudge { rounding: judge, bands: &Fixed };
    assert!(replay(&candle(), &program, &ReferenceValues::default(), &judge).is_empty());
    assert!(program.inputs.iter().any(|input| input.kind == InputKind::Label));
}
