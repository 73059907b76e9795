//! Matrix products and attention.

use crate::conformance::Case;
use crate::conformance::Fill::{AdditiveMask, Float, Weight};
use crate::program::Op;

pub(super) fn cases() -> Vec<Case> {
    let attention = |is_causal, scale| Op::ScaledDotProductAttention { is_causal, scale };
    let qkv: [(&str, &[usize], _); 3] =
        [("q", &[2, 3, 4], Float), ("k", &[2, 5, 4], Float), ("v", &[2, 5, 3], Float)];
    let [q, k, v] = qkv;
    vec![
        Case::new(Op::Mm {}, "", &[("a", &[3, 5], Float), ("b", &[5, 2], Float)]),
        Case::new(Op::Bmm {}, "", &[("a", &[2, 3, 4], Float), ("b", &[2, 4, 3], Float)]),
        Case::new(Op::Matmul {}, "", &[("a", &[2, 3, 4], Float), ("b", &[2, 4, 3], Float)]),
        Case::new(Op::Matmul {}, "broadcast", &[("a", &[2, 1, 3, 4], Float), ("b", &[3, 4, 2], Float)]),
        Case::new(Op::Matmul {}, "matrix", &[("a", &[4, 2, 3], Float), ("b", &[3, 2], Float)]),
        Case::new(
            Op::Addmm { beta: 0.5, alpha: 2.0 },
            "",
            &[("bias", &[2], Float), ("a", &[3, 5], Float), ("b", &[5, 2], Float)],
        ),
        Case::new(
            Op::Baddbmm { beta: 1.0, alpha: 0.25 },
            "",
            &[("bias", &[2, 1, 3], Float), ("a", &[2, 3, 4], Float), ("b", &[2, 4, 3], Float)],
        ),
        Case::new(
            Op::Linear {},
            "",
            &[("x", &[2, 3, 5], Float), ("weight", &[4, 5], Weight), ("bias", &[4], Weight)],
        ),
        Case::new(Op::Linear {}, "no-bias", &[("x", &[3, 5], Float), ("weight", &[4, 5], Weight)]),
        Case::new(
            Op::Linear {},
            "vector",
            &[("x", &[5], Float), ("weight", &[4, 5], Weight), ("bias", &[4], Weight)],
        ),
        Case::new(attention(false, None), "", &qkv),
        Case::new(attention(true, None), "causal", &qkv),
        Case::new(attention(false, Some(0.25)), "scale", &qkv),
        Case::new(
            attention(false, None),
            "heads",
            &[("q", &[2, 2, 3, 4], Float), ("k", &[2, 2, 3, 4], Float), ("v", &[2, 2, 3, 4], Float)],
        ),
        Case::new(attention(false, None), "additive-mask", &[q, k, v, ("mask", &[3, 5], Float)]),
        Case::new(attention(false, None), "infinite-mask", &[q, k, v, ("mask", &[2, 1, 5], AdditiveMask)]),
    ]
}
