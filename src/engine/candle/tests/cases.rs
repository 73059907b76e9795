//! The shared cases, and more of those operators that candle has in several ways.

use crate::conformance::Fill::{Distinct, Even, Float, Index, Positive, Probability, Weight};
use crate::conformance::{Case, CaseInput, Fill, cases as shared};
use crate::program::{LossReduction, Op};

/// Name, shape and kind of values of an input.
type Input = (&'static str, &'static [usize], Fill);

fn case(name: &str, op: Op, inputs: &[Input]) -> Case {
    let name = format!("{}/{name}", op.name());
    let inputs = inputs
        .iter()
        .map(|(name, shape, fill)| CaseInput {
            name: (*name).to_owned(),
            shape: shape.to_vec(),
            fill: *fill,
            differentiable: fill.is_float(),
        })
        .collect();
    Case { name, op, inputs }
}

pub(super) fn cases() -> Vec<Case> {
    [shared(), linear_algebra(), convolution(), pooling(), normalisation(), indexing(), others()].concat()
}

fn linear_algebra() -> Vec<Case> {
    let (weight, bias): (Input, Input) = (("weight", &[2, 4], Weight), ("bias", &[2], Weight));
    vec![
        case("vector", Op::Linear {}, &[("x", &[4], Float), weight, bias]),
        case("five-dimensions", Op::Linear {}, &[("x", &[2, 1, 2, 3, 4], Float), weight, bias]),
        case("no-bias", Op::Linear {}, &[("x", &[2, 3, 4], Float), weight]),
        case("matrix-and-batch", Op::Matmul {}, &[("a", &[3, 4], Float), ("b", &[2, 4, 2], Weight)]),
    ]
}

fn convolution() -> Vec<Case> {
    let conv2d = |stride, padding, dilation, groups| Op::Conv2d {
        stride: [stride, stride],
        padding: [padding, padding],
        dilation: [dilation, dilation],
        groups,
    };
    let transposed = |stride, padding, output_padding, groups, dilation| Op::ConvTranspose2d {
        stride: [stride, stride],
        padding: [padding, padding],
        output_padding: [output_padding, output_padding],
        groups,
        dilation: [dilation, dilation],
    };
    let x: Input = ("x", &[2, 4, 6, 6], Float);
    let small: Input = ("x", &[2, 4, 4, 4], Float);
    vec![
        case("even-stride", conv2d(2, 1, 1, 2), &[x, ("weight", &[4, 2, 3, 3], Weight)]),
        case("even-dilation", conv2d(1, 2, 2, 4), &[x, ("weight", &[4, 1, 3, 3], Weight)]),
        case("remainder", conv2d(2, 0, 1, 1), &[x, ("weight", &[3, 4, 3, 3], Weight)]),
        case(
            "even",
            transposed(2, 1, 1, 1, 1),
            &[small, ("weight", &[4, 2, 3, 3], Weight), ("bias", &[2], Weight)],
        ),
        case(
            "even-groups",
            transposed(1, 0, 0, 2, 1),
            &[small, ("weight", &[4, 2, 3, 3], Weight), ("bias", &[4], Weight)],
        ),
        case("even-dilation", transposed(1, 1, 0, 1, 2), &[small, ("weight", &[4, 2, 3, 3], Weight)]),
    ]
}

fn pooling() -> Vec<Case> {
    let max = |k, stride, ceil_mode| Op::MaxPool2d {
        kernel_size: [k, k],
        stride: [stride, stride],
        padding: [0, 0],
        dilation: [1, 1],
        ceil_mode,
    };
    let average = |k, stride, padding, ceil_mode| Op::AvgPool2d {
        kernel_size: [k, k],
        stride: [stride, stride],
        padding: [padding, padding],
        ceil_mode,
        count_include_pad: true,
    };
    let distinct: Input = ("x", &[1, 2, 6, 6], Distinct);
    let float: Input = ("x", &[1, 2, 6, 6], Float);
    let odd: Input = ("x", &[1, 2, 5, 5], Float);
    vec![
        case("dense", max(3, 1, false), &[distinct]),
        case("ceil", max(2, 2, true), &[("x", &[1, 2, 5, 5], Distinct)]),
        case("remainder", max(2, 2, false), &[("x", &[1, 2, 5, 5], Distinct)]),
        case("dense", average(3, 1, 0, false), &[float]),
        case("tiled-padding", average(2, 2, 1, false), &[float]),
        case("tiled-ceil", average(2, 2, 0, true), &[odd]),
        case("tiled-remainder", average(2, 2, 0, false), &[odd]),
        case("dividing", Op::AdaptiveAvgPool2d { output_size: [3, 2] }, &[float]),
    ]
}

fn normalisation() -> Vec<Case> {
    let rms = Op::RmsNorm { normalized_shape: vec![3, 5], eps: 1e-6 };
    vec![
        case("two-dimensions", rms, &[("x", &[2, 3, 5], Float), ("weight", &[3, 5], Weight)]),
        case("features", Op::GroupNorm { num_groups: 2, eps: 1e-5 }, &[("x", &[3, 8], Float)]),
    ]
}

fn indexing() -> Vec<Case> {
    let x: Input = ("x", &[5, 4], Float);
    let add = |dim| Op::ScatterAdd { dim };
    vec![
        case("full", add(1), &[x, ("index", &[5, 4], Index { below: 4 }), ("source", &[5, 4], Even)]),
        case("wide-source", add(0), &[x, ("index", &[3, 4], Index { below: 5 }), ("source", &[4, 4], Even)]),
        case("full", Op::Gather { dim: 0 }, &[x, ("index", &[3, 4], Index { below: 5 })]),
    ]
}

fn others() -> Vec<Case> {
    let x: Input = ("x", &[3, 4, 5], Distinct);
    let dims = vec![0, 2];
    let classes = |ignore_index, label_smoothing, reduction| Op::CrossEntropy {
        ignore_index,
        label_smoothing,
        reduction,
    };
    let (scores, labels): (Input, Input) = (("x", &[4, 3], Float), ("target", &[4], Index { below: 3 }));
    let pair: [Input; 2] = [("x", &[4, 3], Float), ("target", &[4, 3], Probability)];
    let huber = |beta, reduction| Op::SmoothL1Loss { beta, reduction };
    vec![
        case("two-dimensions", Op::Amax { dims: dims.clone(), keepdim: true }, &[x]),
        case("two-dimensions", Op::Amin { dims: dims.clone(), keepdim: false }, &[x]),
        case("two-dimensions", Op::Logsumexp { dims: dims.clone(), keepdim: true }, &[x]),
        case("one-dimension", Op::Var { dims: vec![1], correction: 1.0, keepdim: false }, &[x]),
        case("middle", Op::Sort { dim: 1, descending: true }, &[x]),
        case("powers", Op::PowScalar { exponent: 1.5 }, &[("x", &[3, 4], Positive)]),
        case("an-ignored-class", classes(1, 0.0, LossReduction::Sum), &[scores, labels]),
        case("smoothed", classes(-100, 0.1, LossReduction::Mean), &[scores, labels]),
        case("zero-beta", huber(0.0, LossReduction::Mean), &pair),
        case("sum", huber(0.75, LossReduction::Sum), &pair),
        case("all", Op::BceWithLogits { reduction: LossReduction::Sum }, &pair),
    ]
}
