//! Sizes around powers of two, and primes, at batch 1 and 2.

use super::Extent;
use crate::conformance::Case;
use crate::conformance::Fill::{
    self, Distinct, Even, Float, Index, LogProbability, Mask, Permutation, Positive, Probability, Weight,
};
use crate::program::{Gelu, LossReduction, Op};

/// Sizes of one dimension.
const FULL: [usize; 19] = [1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129];
const QUICK: [usize; 4] = [1, 7, 8, 13];

/// Sizes of each dimension of an image: both are large where one is.
const IMAGES: [usize; 11] = [2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17];
const QUICK_IMAGES: [usize; 2] = [3, 8];

type Input<'a> = (&'a str, &'a [usize], Fill);

pub(super) fn cases(extent: Extent) -> Vec<Case> {
    let (sizes, images): (&[usize], &[usize]) = match extent {
        Extent::Full => (&FULL, &IMAGES),
        Extent::Quick => (&QUICK, &QUICK_IMAGES),
    };
    let mut all = Vec::new();
    for batch in [1, 2] {
        for n in sizes {
            let mut sized = Sized { name: format!("size-{n}-batch-{batch}"), all: &mut all };
            products(&mut sized, batch, *n);
            rows(&mut sized, batch, *n);
            elements(&mut sized, batch, *n);
            moves(&mut sized, batch, *n);
            losses(&mut sized, batch, *n);
        }
        for n in images {
            pictures(&mut Sized { name: format!("size-{n}-batch-{batch}"), all: &mut all }, batch, *n);
        }
    }
    all
}

struct Sized<'a> {
    name: String,
    all: &'a mut Vec<Case>,
}

impl Sized<'_> {
    fn add(&mut self, op: Op, kind: &str, inputs: &[Input<'_>]) {
        let special = if kind.is_empty() { self.name.clone() } else { format!("{kind}-{}", self.name) };
        let case = Case::new(op, &special, inputs);
        // Sizes that an operator does not take (a stencil larger than the image).
        if case.program().is_ok() {
            self.all.push(case);
        }
    }
}

fn products(s: &mut Sized<'_>, b: usize, n: usize) {
    s.add(Op::Mm {}, "inner", &[("a", &[b, n], Float), ("b", &[n, 3], Float)]);
    s.add(Op::Mm {}, "outer", &[("a", &[n, 5], Float), ("b", &[5, n + 1], Float)]);
    s.add(Op::Bmm {}, "inner", &[("a", &[b, 3, n], Float), ("b", &[b, n, 2], Float)]);
    s.add(Op::Matmul {}, "rows", &[("a", &[b, n, 4], Float), ("b", &[b, 4, 3], Float)]);
    s.add(
        Op::Linear {},
        "in",
        &[("x", &[b, 3, n], Float), ("weight", &[4, n], Weight), ("bias", &[4], Weight)],
    );
    s.add(
        Op::Linear {},
        "out",
        &[("x", &[b, 5], Float), ("weight", &[n, 5], Weight), ("bias", &[n], Weight)],
    );
    s.add(
        Op::Linear {},
        "tokens",
        &[("x", &[b, n, 3], Float), ("weight", &[2, 3], Weight), ("bias", &[2], Weight)],
    );
    s.add(
        Op::Addmm { beta: 0.5, alpha: 2.0 },
        "",
        &[("bias", &[3], Float), ("a", &[b, n], Float), ("b", &[n, 3], Float)],
    );
    s.add(
        Op::Baddbmm { beta: 1.0, alpha: 0.25 },
        "",
        &[("bias", &[b, 2, 3], Float), ("a", &[b, 2, n], Float), ("b", &[b, n, 3], Float)],
    );
    for (kind, is_causal) in [("", false), ("causal", true)] {
        s.add(
            Op::ScaledDotProductAttention { is_causal, scale: None },
            kind,
            &[("q", &[b, 2, n, 4], Float), ("k", &[b, 2, n, 4], Float), ("v", &[b, 2, n, 4], Float)],
        );
    }
}

fn rows(s: &mut Sized<'_>, b: usize, n: usize) {
    let x: Input<'_> = ("x", &[b, n], Float);
    let turned: Input<'_> = ("x", &[n, b], Float);
    let (weight, bias): (Input<'_>, Input<'_>) = (("weight", &[n], Weight), ("bias", &[n], Weight));
    s.add(Op::LayerNorm { normalized_shape: vec![n], eps: 1e-5 }, "", &[x, weight, bias]);
    s.add(Op::RmsNorm { normalized_shape: vec![n], eps: 1e-6 }, "", &[x, weight]);
    let channels: [Input<'_>; 2] = [("weight", &[4], Weight), ("bias", &[4], Weight)];
    s.add(
        Op::GroupNorm { num_groups: 2, eps: 1e-5 },
        "",
        &[("x", &[b, 4, n], Float), channels[0], channels[1]],
    );
    let three: [Input<'_>; 4] = [
        ("weight", &[3], Weight),
        ("bias", &[3], Weight),
        ("running_mean", &[3], Weight),
        ("running_var", &[3], Positive),
    ];
    for (kind, training, batch) in [("", false, b), ("training", true, b + 1)] {
        let op = Op::BatchNorm { training, momentum: 0.1, eps: 1e-5 };
        let inputs = [("x", &[batch, 3, n, 1][..], Float), three[0], three[1], three[2], three[3]];
        s.add(op, kind, &inputs);
        if let Some(case) = s.all.pop() {
            s.all.push(case.constant(&["running_mean", "running_var"]));
        }
    }
    for (kind, input, dim) in [("last", x, -1), ("first", turned, 0)] {
        s.add(Op::Softmax { dim }, kind, &[input]);
        s.add(Op::LogSoftmax { dim }, kind, &[input]);
        s.add(Op::Cumsum { dim }, kind, &[input]);
        let dims = || vec![dim];
        s.add(Op::Sum { dims: dims(), keepdim: false }, kind, &[input]);
        s.add(Op::Mean { dims: dims(), keepdim: true }, kind, &[input]);
        s.add(Op::Logsumexp { dims: dims(), keepdim: false }, kind, &[input]);
        if n > 1 {
            s.add(Op::Var { dims: dims(), correction: 1.0, keepdim: false }, kind, &[input]);
        }
        if b * n <= 150 {
            let distinct = (input.0, input.1, Distinct);
            s.add(Op::Amax { dims: dims(), keepdim: false }, kind, &[distinct]);
            s.add(Op::Amin { dims: dims(), keepdim: true }, kind, &[distinct]);
            s.add(Op::Argmax { dim, keepdim: false }, kind, &[distinct]);
            s.add(Op::Sort { dim, descending: false }, kind, &[distinct]);
            s.add(Op::Topk { k: n.div_ceil(2), dim, largest: true }, kind, &[distinct]);
        }
    }
}

/// Elementwise operators of one input, and the values they are tried on.
pub(super) fn unary() -> Vec<(Op, &'static str, Fill)> {
    vec![
        (Op::Relu {}, "", Float),
        (Op::Gelu { approximate: Gelu::None }, "", Float),
        (Op::Gelu { approximate: Gelu::Tanh }, "tanh", Float),
        (Op::Silu {}, "", Float),
        (Op::Sigmoid {}, "", Float),
        (Op::Tanh {}, "", Float),
        (Op::Softplus { beta: 1.0, threshold: 20.0 }, "", Float),
        (Op::LeakyRelu { negative_slope: 0.01 }, "", Float),
        (Op::Hardswish {}, "", Float),
        (Op::Exp {}, "", Float),
        (Op::Log {}, "", Positive),
        (Op::Sqrt {}, "", Positive),
        (Op::Rsqrt {}, "", Positive),
        (Op::Reciprocal {}, "", Positive),
        (Op::Erf {}, "", Float),
        (Op::Sin {}, "", Float),
        (Op::Cos {}, "", Float),
        (Op::Abs {}, "", Float),
        (Op::Neg {}, "", Float),
        (Op::PowScalar { exponent: 2.0 }, "square", Float),
        (Op::Clamp { min: Some(-1.0), max: Some(0.5) }, "", Float),
        (Op::AddScalar { value: 1.5 }, "", Float),
        (Op::MulScalar { value: -0.75 }, "", Float),
    ]
}

fn elements(s: &mut Sized<'_>, b: usize, n: usize) {
    for (op, kind, fill) in unary() {
        s.add(op, kind, &[("x", &[b, n], fill)]);
    }
    for op in [Op::Add {}, Op::Sub {}, Op::Mul {}, Op::Div {}, Op::Maximum {}, Op::Minimum {}] {
        let second = if op == (Op::Div {}) { Positive } else { Even };
        s.add(op.clone(), "", &[("a", &[b, n], Float), ("b", &[b, n], second)]);
        s.add(op, "bias", &[("a", &[b, 3, n], Float), ("b", &[n], second)]);
    }
    s.add(Op::Dropout { p: 0.25 }, "", &[("x", &[b, n], Float), ("mask", &[b, n], Mask)]);
    s.add(Op::Where {}, "", &[("condition", &[b, n], Mask), ("a", &[b, n], Float), ("b", &[n], Even)]);
    s.add(Op::MaskedFill { value: -2.5 }, "", &[("x", &[b, n], Float), ("mask", &[n], Mask)]);
}

fn moves(s: &mut Sized<'_>, b: usize, n: usize) {
    let x: Input<'_> = ("x", &[b, n, 3], Float);
    let size = isize::try_from(n).unwrap_or(1);
    s.add(Op::Reshape { shape: vec![-1, size] }, "", &[x]);
    s.add(Op::Permute { dims: vec![2, 0, 1] }, "", &[x]);
    s.add(Op::Expand { shape: vec![size, 3] }, "", &[("x", &[1, 3], Float)]);
    s.add(Op::Slice { dim: 1, start: 0, end: size, step: 2 }, "", &[x]);
    s.add(Op::Select { dim: 1, index: -1 }, "", &[x]);
    s.add(Op::Cat { dim: 1 }, "", &[("a", &[b, n], Float), ("b", &[b, 3], Even)]);
    s.add(Op::Stack { dim: 1 }, "", &[("a", &[b, n], Float), ("b", &[b, n], Even)]);
    s.add(Op::Split { split_size: n.div_ceil(2), dim: 1 }, "", &[x]);
    s.add(Op::Pad { pad: vec![1, 2], value: 0.0 }, "", &[("x", &[b, n], Float)]);
    s.add(Op::Roll { shifts: vec![1], dims: vec![1] }, "", &[x]);
    s.add(Op::Flip { dims: vec![1] }, "", &[x]);
    s.add(Op::RepeatInterleave { repeats: 2, dim: 1 }, "", &[x]);
    s.add(Op::Embedding {}, "", &[("weight", &[5, 3], Weight), ("index", &[b, n], Index { below: 5 })]);
    s.add(Op::Embedding {}, "width", &[("weight", &[5, n], Weight), ("index", &[b, 4], Index { below: 5 })]);
    s.add(Op::IndexSelect { dim: 0 }, "", &[("x", &[4, b], Float), ("index", &[n], Index { below: 4 })]);
    s.add(Op::Gather { dim: 1 }, "", &[("x", &[b, 4], Float), ("index", &[b, n], Index { below: 4 })]);
    s.add(
        Op::ScatterAdd { dim: 1 },
        "",
        &[("x", &[b, 4], Float), ("index", &[b, n], Index { below: 4 }), ("source", &[b, n], Even)],
    );
    s.add(
        Op::IndexPut { accumulate: true },
        "accumulate",
        &[("x", &[4, b], Float), ("index", &[n], Index { below: 4 }), ("values", &[n, b], Even)],
    );
    s.add(
        Op::IndexPut { accumulate: false },
        "",
        &[
            ("x", &[n + 2, b], Float),
            ("index", &[n], Permutation { below: n + 2 }),
            ("values", &[n, b], Even),
        ],
    );
}

fn losses(s: &mut Sized<'_>, b: usize, n: usize) {
    use LossReduction::{Mean, Sum};
    let cross = |label_smoothing| Op::CrossEntropy { ignore_index: -100, label_smoothing, reduction: Mean };
    let labels: Input<'_> = ("target", &[b + 1], Index { below: n });
    s.add(cross(0.0), "classes", &[("logits", &[b + 1, n], Float), labels]);
    s.add(cross(0.0), "samples", &[("logits", &[n, 3], Float), ("target", &[n], Index { below: 3 })]);
    let nll = Op::NllLoss { ignore_index: -100, reduction: Mean };
    s.add(nll, "classes", &[("log_probabilities", &[b + 1, n], LogProbability), labels]);
    let pair: [Input<'_>; 2] = [("input", &[b, n], Float), ("target", &[b, n], Even)];
    s.add(Op::MseLoss { reduction: Mean }, "", &pair);
    s.add(Op::L1Loss { reduction: Sum }, "", &pair);
    s.add(Op::SmoothL1Loss { beta: 0.75, reduction: Mean }, "", &pair);
    s.add(
        Op::BceWithLogits { reduction: Mean },
        "",
        &[("input", &[b, n], Float), ("target", &[b, n], Probability)],
    );
    s.add(
        Op::KlDiv { log_target: false, reduction: Sum },
        "",
        &[("input", &[b, n], LogProbability), ("target", &[b, n], Probability)],
    );
}

fn pictures(s: &mut Sized<'_>, b: usize, n: usize) {
    let (x1, x2): (Input<'_>, Input<'_>) = (("x", &[b, 3, n], Float), ("x", &[b, 3, n, n + 1], Float));
    let bias: Input<'_> = ("bias", &[2], Weight);
    let (w1, w2): (Input<'_>, Input<'_>) =
        (("weight", &[2, 3, 3], Weight), ("weight", &[2, 3, 3, 3], Weight));
    s.add(Op::Conv1d { stride: 1, padding: 1, dilation: 1, groups: 1 }, "", &[x1, w1, bias]);
    s.add(Op::Conv2d { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 }, "", &[x2, w2, bias]);
    s.add(Op::Conv2d { stride: [2, 2], padding: [1, 1], dilation: [1, 1], groups: 1 }, "strided", &[x2, w2]);
    s.add(
        Op::Conv2d { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 },
        "channels",
        &[("x", &[b, n, 4, 4], Float), ("weight", &[n, n, 3, 3], Weight)],
    );
    s.add(
        Op::ConvTranspose1d { stride: 2, padding: 1, output_padding: 1, groups: 1, dilation: 1 },
        "",
        &[x1, ("weight", &[3, 2, 3], Weight), bias],
    );
    s.add(
        Op::ConvTranspose2d {
            stride: [2, 2],
            padding: [1, 1],
            output_padding: [1, 1],
            groups: 1,
            dilation: [1, 1],
        },
        "",
        &[x2, ("weight", &[3, 2, 3, 3], Weight), bias],
    );
    let average = |k, stride, padding| Op::AvgPool2d {
        kernel_size: [k, k],
        stride: [stride, stride],
        padding: [padding, padding],
        ceil_mode: false,
        count_include_pad: true,
    };
    s.add(average(2, 2, 0), "", &[x2]);
    s.add(average(3, 2, 1), "overlapping", &[x2]);
    s.add(Op::AdaptiveAvgPool2d { output_size: [2, 2] }, "", &[x2]);
    if 2 * n * (n + 1) <= 150 {
        let max = |k, padding| Op::MaxPool2d {
            kernel_size: [k, k],
            stride: [2, 2],
            padding: [padding, padding],
            dilation: [1, 1],
            ceil_mode: false,
        };
        let distinct: Input<'_> = ("x", &[1, 2, n, n + 1], Distinct);
        s.add(max(2, 0), "", &[distinct]);
        s.add(max(3, 1), "overlapping", &[distinct]);
    }
    s.add(Op::UpsampleNearest2d { output_size: [2 * n, 2 * (n + 1)] }, "", &[x2]);
    s.add(Op::UpsampleNearest2d { output_size: [n + 1, 2 * n + 1] }, "uneven", &[x2]);
    s.add(Op::UpsampleBilinear2d { output_size: [2 * n, n + 3], align_corners: false }, "", &[x2]);
    s.add(Op::UpsampleBilinear2d { output_size: [n + 1, 2 * n], align_corners: true }, "corners", &[x2]);
}
