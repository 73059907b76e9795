//! Long reductions, large tensors, masked rows, and means much larger than the deviation.

use super::sizes::unary;
use super::{Extent, FLOATS};
use crate::conformance::Case;
use crate::conformance::Fill::{
    self, Around, Even, Float, Full, Index, LogProbability, Mask, MaskedRow, One, Positive, Probability,
    Weight,
};
use crate::numerics::DType;
use crate::program::{LossReduction, Op};

/// Beyond 2048, where a sum of ones stops in f16, and 256, where it stops in bf16.
const LONG: usize = 5000;
/// Just beyond 2^15 and 2^16, and no multiple of a tile.
const LARGE: [usize; 2] = [33_001, 65_539];

type Input<'a> = (&'a str, &'a [usize], Fill);

/// Cases, each with the dtypes that it is meant for.
pub(super) fn cases(extent: Extent) -> Vec<(Case, Vec<DType>)> {
    let mut all: Vec<(Case, Vec<DType>)> = Vec::new();
    let mut add = |cases: Vec<Case>| all.extend(cases.into_iter().map(|case| (case, FLOATS.to_vec())));
    add(long());
    add(masked());
    if extent == Extent::Full {
        for n in LARGE {
            add(large(n));
        }
    }
    for (dtype, steps) in [(DType::F64, 32), (DType::F32, 32), (DType::F16, 16), (DType::BF16, 2)] {
        all.extend(around(steps, dtype).into_iter().map(|case| (case, vec![dtype])));
    }
    all
}

/// Long sums and products, from which the mode of computation shows.
pub(super) fn modes() -> Vec<Case> {
    vec![
        Case::new(Op::Mm {}, "4096", &[("a", &[4, 4096], Float), ("b", &[4096, 8], Float)]),
        Case::new(Op::Bmm {}, "4096", &[("a", &[2, 3, 4096], Float), ("b", &[2, 4096, 4], Float)]),
        Case::new(Op::Linear {}, "4096", &[("x", &[4, 4096], Float), ("weight", &[8, 4096], Float)]),
        Case::new(
            Op::Conv2d { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 },
            "4096",
            &[("x", &[1, 64, 9, 9], Float), ("weight", &[8, 64, 8, 8], Float)],
        ),
        Case::new(Op::Sum { dims: vec![-1], keepdim: false }, "4096", &[("x", &[16, 4096], Float)]),
        Case::new(Op::Mean { dims: vec![-1], keepdim: false }, "4096", &[("x", &[16, 4096], Float)]),
    ]
}

/// Values of full precision: squares of the others have low bits in common, which biases a
/// long sum in one direction.
fn long() -> Vec<Case> {
    let mut cases = Vec::new();
    for (kind, fill) in [("long", Full), ("long-ones", One), ("long-positive", Positive)] {
        let x: [Input<'_>; 1] = [("x", &[LONG], fill)];
        let rows: [Input<'_>; 1] = [("x", &[2, LONG], fill)];
        let name = |what: &str| format!("{kind}{what}");
        cases.extend([
            Case::new(Op::Sum { dims: vec![], keepdim: false }, kind, &x),
            Case::new(Op::Sum { dims: vec![0], keepdim: false }, &name("-first"), &[("x", &[LONG, 2], fill)]),
            Case::new(Op::Mean { dims: vec![-1], keepdim: false }, kind, &rows),
            Case::new(Op::Cumsum { dim: 0 }, kind, &x),
            Case::new(Op::Softmax { dim: -1 }, kind, &rows),
            Case::new(Op::LogSoftmax { dim: -1 }, kind, &rows),
            Case::new(Op::Logsumexp { dims: vec![-1], keepdim: false }, kind, &rows),
            Case::new(Op::Mm {}, kind, &[("a", &[2, LONG], fill), ("b", &[LONG, 2], fill)]),
            Case::new(
                Op::Linear {},
                &name("-tokens"),
                &[("x", &[LONG, 2], fill), ("weight", &[3, 2], Weight), ("bias", &[3], Weight)],
            ),
            Case::new(Op::Add {}, &name("-bias"), &[("a", &[LONG, 2], fill), ("b", &[2], Even)]),
            Case::new(
                Op::Embedding {},
                &name("-one-row"),
                &[("weight", &[1, 2], fill), ("index", &[LONG], Index { below: 1 })],
            ),
        ]);
    }
    let x: Input<'_> = ("x", &[2, LONG], Full);
    let (weight, bias): (Input<'_>, Input<'_>) = (("weight", &[LONG], Weight), ("bias", &[LONG], Weight));
    let (log, p): (Input<'_>, Input<'_>) =
        (("input", &[LONG], LogProbability), ("target", &[LONG], Probability));
    let mean = LossReduction::Mean;
    cases.extend([
        Case::new(Op::Var { dims: vec![-1], correction: 1.0, keepdim: false }, "long", &[x]),
        Case::new(Op::LayerNorm { normalized_shape: vec![LONG], eps: 1e-5 }, "long", &[x, weight, bias]),
        Case::new(Op::RmsNorm { normalized_shape: vec![LONG], eps: 1e-6 }, "long", &[x, weight]),
        Case::new(
            Op::LayerNorm { normalized_shape: vec![2], eps: 1e-5 },
            "long-tokens",
            &[("x", &[LONG, 2], Full), ("weight", &[2], Weight), ("bias", &[2], Weight)],
        ),
        Case::new(
            Op::Conv1d { stride: 1, padding: 1, dilation: 1, groups: 1 },
            "long",
            &[("x", &[1, 2, LONG], Full), ("weight", &[2, 2, 3], Weight), ("bias", &[2], Weight)],
        ),
        Case::new(
            Op::ScatterAdd { dim: 0 },
            "long",
            &[("x", &[2], Float), ("index", &[LONG], Index { below: 2 }), ("source", &[LONG], Full)],
        ),
        Case::new(
            Op::CrossEntropy { ignore_index: -100, label_smoothing: 0.0, reduction: mean },
            "long-classes",
            &[("logits", &[2, LONG], Full), ("target", &[2], Index { below: LONG })],
        ),
        Case::new(
            Op::CrossEntropy { ignore_index: -100, label_smoothing: 0.0, reduction: mean },
            "long-samples",
            &[("logits", &[LONG, 3], Full), ("target", &[LONG], Index { below: 3 })],
        ),
        Case::new(
            Op::MseLoss { reduction: mean },
            "long",
            &[("input", &[LONG], Full), ("target", &[LONG], Even)],
        ),
        Case::new(Op::BceWithLogits { reduction: mean }, "long", &[("input", &[LONG], Full), p]),
        Case::new(Op::KlDiv { log_target: false, reduction: mean }, "long", &[log, p]),
        Case::new(
            Op::ScaledDotProductAttention { is_causal: false, scale: None },
            "long",
            &[("q", &[1, 1, 2, 4], Float), ("k", &[1, 1, LONG, 4], Full), ("v", &[1, 1, LONG, 4], Full)],
        ),
    ]);
    cases
}

/// Rows of which nothing is seen: zeros in attention, NaN in the softmax itself.
fn masked() -> Vec<Case> {
    let rows: [Input<'_>; 1] = [("x", &[3, 5], MaskedRow)];
    vec![
        Case::new(Op::Softmax { dim: -1 }, "masked-row", &rows),
        Case::new(Op::LogSoftmax { dim: -1 }, "masked-row", &rows),
        Case::new(Op::Logsumexp { dims: vec![-1], keepdim: false }, "masked-row", &rows),
        Case::new(
            Op::ScaledDotProductAttention { is_causal: false, scale: None },
            "masked-row",
            &[
                ("q", &[1, 2, 3, 4], Float),
                ("k", &[1, 2, 5, 4], Float),
                ("v", &[1, 2, 5, 4], Float),
                ("mask", &[3, 5], MaskedRow),
            ],
        ),
    ]
}

fn large(n: usize) -> Vec<Case> {
    let name = |kind: &str| if kind.is_empty() { format!("large-{n}") } else { format!("{kind}-large-{n}") };
    let x: Input<'_> = ("x", &[n], Float);
    let (rows, columns): (Input<'_>, Input<'_>) = (("x", &[n, 2], Float), ("x", &[2, n], Float));
    let mut cases: Vec<Case> = unary()
        .into_iter()
        .map(|(op, kind, fill)| Case::new(op, &name(kind), &[("x", &[n], fill)]))
        .collect();
    for op in [Op::Add {}, Op::Mul {}, Op::Div {}, Op::Maximum {}] {
        cases.push(Case::new(op, &name(""), &[("a", &[n], Float), ("b", &[n], Positive)]));
    }
    cases.extend([
        Case::new(Op::Sum { dims: vec![], keepdim: false }, &name(""), &[x]),
        Case::new(Op::Sum { dims: vec![-1], keepdim: false }, &name("short"), &[rows]),
        Case::new(Op::Mean { dims: vec![0], keepdim: false }, &name("first"), &[rows]),
        Case::new(Op::Softmax { dim: -1 }, &name("short"), &[rows]),
        Case::new(Op::Softmax { dim: -1 }, &name(""), &[columns]),
        Case::new(
            Op::LayerNorm { normalized_shape: vec![2], eps: 1e-5 },
            &name(""),
            &[rows, ("weight", &[2], Weight), ("bias", &[2], Weight)],
        ),
        Case::new(Op::Mm {}, &name("rows"), &[("a", &[n, 3], Float), ("b", &[3, 2], Float)]),
        Case::new(Op::Mm {}, &name("inner"), &[("a", &[2, n], Float), ("b", &[n, 2], Float)]),
        Case::new(Op::Cat { dim: 0 }, &name(""), &[("a", &[n], Float), ("b", &[3], Even)]),
        Case::new(Op::Permute { dims: vec![1, 0] }, &name(""), &[rows]),
        Case::new(Op::Flip { dims: vec![0] }, &name(""), &[rows]),
        Case::new(Op::Roll { shifts: vec![1], dims: vec![0] }, &name(""), &[rows]),
        Case::new(Op::Slice { dim: 0, start: 1, end: isize::MAX, step: 1 }, &name(""), &[rows]),
        Case::new(Op::Pad { pad: vec![1, 2], value: 0.0 }, &name(""), &[x]),
        Case::new(Op::RepeatInterleave { repeats: 2, dim: 0 }, &name(""), &[x]),
        Case::new(Op::IndexSelect { dim: 0 }, &name(""), &[rows, ("index", &[5], Index { below: n })]),
        Case::new(
            Op::Embedding {},
            &name(""),
            &[("weight", &[3, 2], Weight), ("index", &[n], Index { below: 3 })],
        ),
        Case::new(Op::Gather { dim: 0 }, &name(""), &[x, ("index", &[n], Index { below: n })]),
        Case::new(
            Op::Where {},
            &name(""),
            &[("condition", &[n], Mask), ("a", &[n], Float), ("b", &[n], Even)],
        ),
        Case::new(Op::MaskedFill { value: -2.5 }, &name(""), &[x, ("mask", &[n], Mask)]),
        Case::new(
            Op::Conv1d { stride: 1, padding: 1, dilation: 1, groups: 1 },
            &name(""),
            &[("x", &[1, 1, n], Float), ("weight", &[1, 1, 3], Weight)],
        ),
        Case::new(
            Op::UpsampleNearest2d { output_size: [2, n] },
            &name(""),
            &[("x", &[1, 1, 1, n.div_ceil(2)], Float)],
        ),
    ]);
    cases
}

/// Mean 100, deviation a few steps of the dtype.
fn around(steps: u32, dtype: DType) -> Vec<Case> {
    let fill = Around { steps };
    let rows: Input<'_> = ("x", &[3, 256], fill);
    let (weight, bias): (Input<'_>, Input<'_>) = (("weight", &[256], Weight), ("bias", &[256], Weight));
    let channels: [Input<'_>; 4] = [
        ("weight", &[2], Weight),
        ("bias", &[2], Weight),
        ("running_mean", &[2], Weight),
        ("running_var", &[2], Positive),
    ];
    let image: Input<'_> = ("x", &[3, 2, 8, 8], fill);
    let name = format!("mean-100-{dtype}");
    vec![
        Case::new(Op::LayerNorm { normalized_shape: vec![256], eps: 1e-5 }, &name, &[rows, weight, bias]),
        Case::new(Op::RmsNorm { normalized_shape: vec![256], eps: 1e-6 }, &name, &[rows, weight]),
        Case::new(Op::GroupNorm { num_groups: 1, eps: 1e-5 }, &name, &[image, channels[0], channels[1]]),
        Case::new(
            Op::BatchNorm { training: true, momentum: 0.1, eps: 1e-5 },
            &name,
            &[image, channels[0], channels[1], channels[2], channels[3]],
        )
        .constant(&["running_mean", "running_var"]),
        Case::new(Op::Var { dims: vec![-1], correction: 1.0, keepdim: false }, &name, &[rows]),
        Case::new(Op::Softmax { dim: -1 }, &name, &[rows]),
        Case::new(Op::LogSoftmax { dim: -1 }, &name, &[rows]),
        Case::new(Op::Logsumexp { dims: vec![-1], keepdim: false }, &name, &[rows]),
    ]
}
