//! Elementwise operators, casts and dropout.

use crate::conformance::Case;
use crate::conformance::Fill::{self, Even, Float, Mask, Positive};
use crate::numerics::DType;
use crate::program::{Gelu, Op};

pub(super) fn cases() -> Vec<Case> {
    let one = |op: Op, special: &str, fill: Fill| Case::new(op, special, &[("x", &[3, 5], fill)]);
    let mut cases = vec![
        one(Op::Relu {}, "", Float),
        one(Op::Gelu { approximate: Gelu::None }, "", Float),
        one(Op::Gelu { approximate: Gelu::Tanh }, "tanh", Float),
        one(Op::Silu {}, "", Float),
        one(Op::Sigmoid {}, "", Float),
        one(Op::Tanh {}, "", Float),
        one(Op::Softplus { beta: 1.0, threshold: 20.0 }, "", Float),
        one(Op::Softplus { beta: 2.0, threshold: 1.0 }, "threshold", Float),
        one(Op::LeakyRelu { negative_slope: 0.01 }, "", Float),
        one(Op::Hardswish {}, "", Float),
        one(Op::Exp {}, "", Float),
        one(Op::Log {}, "", Positive),
        one(Op::Sqrt {}, "", Positive),
        one(Op::Rsqrt {}, "", Positive),
        one(Op::Reciprocal {}, "", Positive),
        one(Op::Erf {}, "", Float),
        one(Op::Sin {}, "", Float),
        one(Op::Cos {}, "", Float),
        one(Op::Abs {}, "", Float),
        one(Op::Neg {}, "", Float),
        one(Op::PowScalar { exponent: 2.0 }, "square", Float),
        one(Op::PowScalar { exponent: 3.0 }, "cube", Float),
        one(Op::PowScalar { exponent: -1.5 }, "fraction", Positive),
        one(Op::PowScalar { exponent: 0.0 }, "zero", Float),
        one(Op::Clamp { min: Some(-1.0), max: Some(0.5) }, "", Float),
        one(Op::Clamp { min: Some(0.0), max: None }, "from-below", Float),
        one(Op::AddScalar { value: 1.5 }, "", Float),
        one(Op::MulScalar { value: -0.75 }, "", Float),
    ];
    for op in [Op::Add {}, Op::Sub {}, Op::Mul {}, Op::Div {}, Op::Maximum {}, Op::Minimum {}] {
        let second = if op == (Op::Div {}) { Positive } else { Even };
        cases.push(Case::new(op.clone(), "", &[("a", &[3, 5], Float), ("b", &[3, 5], second)]));
        cases.push(Case::new(op.clone(), "bias", &[("a", &[2, 3, 4], Float), ("b", &[4], second)]));
        cases.push(Case::new(op, "outer", &[("a", &[3, 1], Float), ("b", &[2, 1, 4], second)]));
    }
    cases.extend([
        one(Op::Cast { dtype: DType::F16 }, "f16", Float),
        one(Op::Cast { dtype: DType::BF16 }, "bf16", Float),
        one(Op::Cast { dtype: DType::F32 }, "f32", Float),
        Case::new(Op::Dropout { p: 0.25 }, "", &[("x", &[4, 5], Float), ("mask", &[4, 5], Mask)]),
        Case::new(Op::Dropout { p: 0.0 }, "none", &[("x", &[4, 5], Float), ("mask", &[4, 5], Mask)]),
    ]);
    cases
}
