//! Convolution, pooling and upsampling.

use crate::conformance::Case;
use crate::conformance::Fill::{Distinct, Float, Weight};
use crate::program::Op;

pub(super) fn cases() -> Vec<Case> {
    [convolutions(), transposed(), pools(), upsampling()].concat()
}

fn convolutions() -> Vec<Case> {
    let conv1d = |stride, padding, dilation, groups| Op::Conv1d { stride, padding, dilation, groups };
    let conv2d = |stride, padding, dilation, groups| Op::Conv2d { stride, padding, dilation, groups };
    vec![
        Case::new(
            conv1d(1, 1, 1, 1),
            "",
            &[("x", &[2, 3, 7], Float), ("weight", &[4, 3, 3], Weight), ("bias", &[4], Weight)],
        ),
        Case::new(conv1d(2, 2, 2, 2), "groups", &[("x", &[2, 4, 8], Float), ("weight", &[6, 2, 3], Weight)]),
        Case::new(
            conv2d([1, 1], [1, 1], [1, 1], 1),
            "",
            &[("x", &[2, 3, 4, 5], Float), ("weight", &[2, 3, 3, 3], Weight), ("bias", &[2], Weight)],
        ),
        Case::new(
            conv2d([2, 2], [0, 0], [1, 1], 1),
            "patches",
            &[("x", &[2, 2, 4, 6], Float), ("weight", &[3, 2, 2, 2], Weight), ("bias", &[3], Weight)],
        ),
        Case::new(
            conv2d([2, 1], [1, 2], [1, 2], 1),
            "strided-dilated",
            &[("x", &[1, 2, 5, 6], Float), ("weight", &[2, 2, 3, 2], Weight)],
        ),
        Case::new(
            conv2d([1, 1], [0, 1], [1, 1], 2),
            "groups",
            &[("x", &[2, 4, 3, 4], Float), ("weight", &[4, 2, 2, 3], Weight), ("bias", &[4], Weight)],
        ),
        Case::new(
            conv2d([1, 1], [1, 1], [1, 1], 3),
            "depthwise",
            &[("x", &[1, 3, 4, 4], Float), ("weight", &[3, 1, 3, 3], Weight)],
        ),
        Case::new(
            conv2d([1, 1], [0, 0], [1, 1], 1),
            "pointwise",
            &[("x", &[2, 3, 3, 3], Float), ("weight", &[4, 3, 1, 1], Weight)],
        ),
    ]
}

fn transposed() -> Vec<Case> {
    vec![
        Case::new(
            Op::ConvTranspose1d { stride: 2, padding: 1, output_padding: 1, groups: 1, dilation: 1 },
            "",
            &[("x", &[2, 3, 5], Float), ("weight", &[3, 2, 3], Weight), ("bias", &[2], Weight)],
        ),
        Case::new(
            Op::ConvTranspose1d { stride: 1, padding: 0, output_padding: 0, groups: 2, dilation: 2 },
            "groups",
            &[("x", &[1, 4, 5], Float), ("weight", &[4, 2, 3], Weight)],
        ),
        Case::new(
            Op::ConvTranspose2d {
                stride: [2, 2],
                padding: [1, 0],
                output_padding: [1, 0],
                groups: 1,
                dilation: [1, 1],
            },
            "",
            &[("x", &[2, 2, 3, 2], Float), ("weight", &[2, 3, 3, 2], Weight), ("bias", &[3], Weight)],
        ),
        Case::new(
            Op::ConvTranspose2d {
                stride: [1, 2],
                padding: [0, 1],
                output_padding: [0, 1],
                groups: 2,
                dilation: [2, 1],
            },
            "groups",
            &[("x", &[1, 4, 2, 3], Float), ("weight", &[4, 1, 2, 3], Weight)],
        ),
    ]
}

fn pools() -> Vec<Case> {
    let max = |kernel_size, stride, padding, dilation, ceil_mode| Op::MaxPool2d {
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
    };
    let average = |kernel_size, stride, padding, ceil_mode, count_include_pad| Op::AvgPool2d {
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
    };
    let small: (&str, &[usize], _) = ("x", &[1, 2, 5, 6], Distinct);
    vec![
        Case::new(max([2, 2], [2, 2], [0, 0], [1, 1], false), "", &[("x", &[2, 2, 4, 6], Distinct)]),
        Case::new(max([3, 3], [2, 2], [1, 1], [1, 1], false), "overlapping", &[small]),
        Case::new(max([2, 3], [1, 2], [1, 1], [2, 1], true), "dilated-ceil", &[small]),
        Case::new(average([2, 2], [2, 2], [0, 0], false, true), "", &[("x", &[2, 2, 4, 6], Float)]),
        Case::new(average([3, 3], [2, 2], [1, 1], false, true), "padding", &[("x", &[1, 2, 5, 6], Float)]),
        Case::new(
            average([3, 2], [2, 2], [1, 1], true, false),
            "ceil-without-padding",
            &[("x", &[1, 2, 5, 6], Float)],
        ),
        Case::new(average([3, 3], [2, 2], [0, 0], true, true), "ceil", &[("x", &[1, 2, 6, 4], Float)]),
        Case::new(Op::AdaptiveAvgPool2d { output_size: [1, 1] }, "global", &[("x", &[2, 3, 3, 4], Float)]),
        Case::new(Op::AdaptiveAvgPool2d { output_size: [3, 4] }, "uneven", &[("x", &[1, 2, 5, 6], Float)]),
    ]
}

fn upsampling() -> Vec<Case> {
    let bilinear = |output_size, align_corners| Op::UpsampleBilinear2d { output_size, align_corners };
    let x: (&str, &[usize], _) = ("x", &[1, 2, 3, 4], Float);
    vec![
        Case::new(Op::UpsampleNearest2d { output_size: [6, 8] }, "", &[x]),
        Case::new(Op::UpsampleNearest2d { output_size: [5, 3] }, "uneven", &[x]),
        Case::new(bilinear([6, 8], false), "", &[x]),
        Case::new(bilinear([5, 7], true), "corners", &[x]),
        Case::new(bilinear([2, 1], true), "smaller-corners", &[x]),
        Case::new(bilinear([2, 3], false), "smaller", &[x]),
    ]
}
