//! Gathering, scattering and selection by mask.

use crate::conformance::Case;
use crate::conformance::Fill::{Even, Float, Index, Mask, Permutation, Weight};
use crate::program::Op;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            Op::Embedding {},
            "",
            &[("weight", &[6, 3], Weight), ("index", &[2, 4], Index { below: 6 })],
        ),
        Case::new(
            Op::Embedding {},
            "repeated",
            &[("weight", &[3, 2], Weight), ("index", &[9], Index { below: 3 })],
        ),
        Case::new(
            Op::IndexSelect { dim: 0 },
            "",
            &[("x", &[4, 3], Float), ("index", &[5], Index { below: 4 })],
        ),
        Case::new(
            Op::IndexSelect { dim: -1 },
            "last",
            &[("x", &[2, 3, 4], Float), ("index", &[3], Index { below: 4 })],
        ),
        Case::new(
            Op::Gather { dim: 1 },
            "",
            &[("x", &[3, 4], Float), ("index", &[2, 5], Index { below: 4 })],
        ),
        Case::new(
            Op::Gather { dim: 0 },
            "first",
            &[("x", &[3, 4], Float), ("index", &[5, 2], Index { below: 3 })],
        ),
        Case::new(
            Op::ScatterAdd { dim: 1 },
            "",
            &[("x", &[3, 4], Float), ("index", &[2, 5], Index { below: 4 }), ("source", &[2, 5], Even)],
        ),
        Case::new(
            Op::ScatterAdd { dim: 0 },
            "first",
            &[("x", &[2, 3], Float), ("index", &[4, 3], Index { below: 2 }), ("source", &[4, 3], Even)],
        ),
        Case::new(
            Op::IndexPut { accumulate: true },
            "accumulate",
            &[("x", &[4, 3], Float), ("index", &[6], Index { below: 4 }), ("values", &[6, 3], Even)],
        ),
        Case::new(
            Op::IndexPut { accumulate: false },
            "",
            &[("x", &[5, 3], Float), ("index", &[3], Permutation { below: 5 }), ("values", &[3, 3], Even)],
        ),
        Case::new(
            Op::Where {},
            "",
            &[("condition", &[3, 4], Mask), ("a", &[3, 4], Float), ("b", &[3, 4], Even)],
        ),
        Case::new(
            Op::Where {},
            "broadcast",
            &[("condition", &[3, 1], Mask), ("a", &[2, 1, 4], Float), ("b", &[4], Even)],
        ),
        Case::new(Op::MaskedFill { value: -2.5 }, "", &[("x", &[3, 4], Float), ("mask", &[3, 4], Mask)]),
        Case::new(
            Op::MaskedFill { value: 0.0 },
            "broadcast",
            &[("x", &[2, 3, 4], Float), ("mask", &[3, 1], Mask)],
        ),
    ]
}
