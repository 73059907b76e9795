//! Softmax, reductions, sorting.

use crate::conformance::Case;
use crate::conformance::Fill::{self, Distinct, Float};
use crate::program::Op;

pub(super) fn cases() -> Vec<Case> {
    let on = |op: Op, special: &str, fill: Fill| Case::new(op, special, &[("x", &[2, 3, 4], fill)]);
    let mut cases = vec![
        on(Op::Softmax { dim: -1 }, "", Float),
        on(Op::Softmax { dim: 1 }, "inner", Float),
        on(Op::LogSoftmax { dim: -1 }, "", Float),
        on(Op::LogSoftmax { dim: 0 }, "outer", Float),
    ];
    // Everything, the last dimension, the first, a kept one in the middle, two around it.
    let choices: [(&str, Vec<isize>, bool); 5] = [
        ("all", vec![], false),
        ("last", vec![-1], false),
        ("first", vec![0], false),
        ("middle-kept", vec![1], true),
        ("around", vec![0, 2], false),
    ];
    for (name, dims, keepdim) in choices {
        let dims = || dims.clone();
        cases.extend([
            on(Op::Sum { dims: dims(), keepdim }, name, Float),
            on(Op::Mean { dims: dims(), keepdim }, name, Float),
            on(Op::Var { dims: dims(), correction: 1.0, keepdim }, name, Float),
            on(Op::Amax { dims: dims(), keepdim }, name, Distinct),
            on(Op::Amin { dims: dims(), keepdim }, name, Distinct),
            on(Op::Logsumexp { dims: dims(), keepdim }, name, Float),
        ]);
    }
    cases.extend([
        on(Op::Var { dims: vec![-1], correction: 0.0, keepdim: false }, "biased", Float),
        on(Op::Cumsum { dim: -1 }, "", Float),
        on(Op::Cumsum { dim: 1 }, "inner", Float),
        on(Op::Argmax { dim: -1, keepdim: false }, "", Distinct),
        on(Op::Argmax { dim: 1, keepdim: true }, "kept", Distinct),
        on(Op::Topk { k: 2, dim: -1, largest: true }, "", Distinct),
        on(Op::Topk { k: 2, dim: 1, largest: false }, "smallest", Distinct),
        on(Op::Sort { dim: -1, descending: false }, "", Distinct),
        on(Op::Sort { dim: 1, descending: true }, "descending", Distinct),
    ]);
    cases
}
