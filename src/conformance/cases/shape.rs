//! Operators that move elements.

use crate::conformance::Case;
use crate::conformance::Fill::{Even, Float};
use crate::program::Op;

pub(super) fn cases() -> Vec<Case> {
    let on = |op: Op, special: &str| Case::new(op, special, &[("x", &[2, 3, 4], Float)]);
    let expand = |shape: &[isize]| Op::Expand { shape: shape.to_vec() };
    let slice = |dim, start, end, step| Op::Slice { dim, start, end, step };
    let pad = |pad: &[isize], value| Op::Pad { pad: pad.to_vec(), value };
    vec![
        on(Op::Reshape { shape: vec![4, -1] }, ""),
        Case::new(Op::Reshape { shape: vec![1, 1] }, "scalar", &[("x", &[], Float)]),
        on(Op::Permute { dims: vec![2, 0, 1] }, ""),
        on(Op::Permute { dims: vec![0, -1, 1] }, "negative"),
        Case::new(expand(&[2, 3, 4]), "", &[("x", &[3, 1], Float)]),
        Case::new(expand(&[5, -1]), "keep", &[("x", &[1, 3], Float)]),
        on(slice(1, 1, 3, 1), ""),
        on(slice(-1, -3, 100, 2), "stepped"),
        on(slice(0, 2, 2, 1), "empty"),
        on(Op::Select { dim: 1, index: 2 }, ""),
        on(Op::Select { dim: -1, index: -1 }, "negative"),
        Case::new(
            Op::Cat { dim: 1 },
            "",
            &[("a", &[2, 1, 3], Float), ("b", &[2, 3, 3], Even), ("c", &[2, 2, 3], Float)],
        ),
        Case::new(Op::Stack { dim: -1 }, "", &[("a", &[2, 3], Float), ("b", &[2, 3], Even)]),
        Case::new(Op::Stack { dim: 0 }, "first", &[("a", &[2, 3], Float), ("b", &[2, 3], Even)]),
        on(Op::Split { split_size: 2, dim: 1 }, ""),
        on(Op::Split { split_size: 2, dim: -1 }, "even"),
        on(pad(&[1, 2], 0.0), ""),
        on(pad(&[1, 0, 0, 2, 1, 1], 0.5), "all-dimensions"),
        on(pad(&[-1, 2, 1, -1], 0.0), "negative"),
        on(Op::Roll { shifts: vec![1], dims: vec![-1] }, ""),
        on(Op::Roll { shifts: vec![-2, 5], dims: vec![1, 2] }, "two-dimensions"),
        on(Op::Flip { dims: vec![0, 2] }, ""),
        on(Op::RepeatInterleave { repeats: 3, dim: 1 }, ""),
        Case::new(Op::RepeatInterleave { repeats: 2, dim: -1 }, "last", &[("x", &[3, 2], Float)]),
    ]
}
