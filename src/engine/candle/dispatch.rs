//! From an operator to its family.

use candle_core::{Result, Tensor};

use super::situation::{Backend, Situation};
use super::{attention, conv, index, linalg, loss, norm, pointwise, pool, reduce, shape, upsample};
use crate::engine::Support;
use crate::numerics::DType;
use crate::program::Op;

/// Family of an operator: its `supports` and its `apply`.
type Family =
    (fn(&Op, &Situation<'_>) -> Support, fn(&Op, &Situation<'_>, &[&Tensor]) -> Result<Vec<Tensor>>);

/// The declared set.
pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    let f64_on_metal = s.types.iter().any(|v| v.dtype == DType::F64) || s.dtype == DType::F64;
    if s.backend == Backend::Metal && f64_on_metal {
        return Support::Unsupported("Metal has no f64; compare in f32 or on the CPU".to_owned());
    }
    (family(op).0)(op, s)
}

/// Does it.
pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    (family(op).1)(op, s, x)
}

fn family(op: &Op) -> Family {
    use Op::*;
    match op {
        Mm {} | Bmm {} | Matmul {} | Addmm { .. } | Baddbmm { .. } | Linear {} => {
            (linalg::supports, linalg::apply)
        }
        Conv1d { .. } | Conv2d { .. } | ConvTranspose1d { .. } | ConvTranspose2d { .. } => {
            (conv::supports, conv::apply)
        }
        MaxPool2d { .. } | AvgPool2d { .. } | AdaptiveAvgPool2d { .. } => (pool::supports, pool::apply),
        LayerNorm { .. } | RmsNorm { .. } | GroupNorm { .. } | BatchNorm { .. } => {
            (norm::supports, norm::apply)
        }
        Relu {}
        | Gelu { .. }
        | Silu {}
        | Sigmoid {}
        | Tanh {}
        | Softplus { .. }
        | LeakyRelu { .. }
        | Hardswish {}
        | Exp {}
        | Log {}
        | Sqrt {}
        | Rsqrt {}
        | Reciprocal {}
        | Erf {}
        | Sin {}
        | Cos {}
        | Abs {}
        | Neg {}
        | PowScalar { .. }
        | Clamp { .. }
        | AddScalar { .. }
        | MulScalar { .. }
        | Add {}
        | Sub {}
        | Mul {}
        | Div {}
        | Maximum {}
        | Minimum {}
        | Cast { .. }
        | Dropout { .. } => (pointwise::supports, pointwise::apply),
        Softmax { .. } | LogSoftmax { .. } | ScaledDotProductAttention { .. } => {
            (attention::supports, attention::apply)
        }
        Sum { .. }
        | Mean { .. }
        | Var { .. }
        | Amax { .. }
        | Amin { .. }
        | Logsumexp { .. }
        | Cumsum { .. }
        | Argmax { .. }
        | Topk { .. }
        | Sort { .. } => (reduce::supports, reduce::apply),
        Embedding {}
        | IndexSelect { .. }
        | Gather { .. }
        | ScatterAdd { .. }
        | IndexPut { .. }
        | Where {}
        | MaskedFill { .. } => (index::supports, index::apply),
        Reshape { .. }
        | Permute { .. }
        | Expand { .. }
        | Slice { .. }
        | Select { .. }
        | Cat { .. }
        | Stack { .. }
        | Split { .. }
        | Pad { .. }
        | Roll { .. }
        | Flip { .. }
        | RepeatInterleave { .. } => (shape::supports, shape::apply),
        UpsampleNearest2d { .. } | UpsampleBilinear2d { .. } => (upsample::supports, upsample::apply),
        CrossEntropy { .. }
        | NllLoss { .. }
        | MseLoss { .. }
        | L1Loss { .. }
        | SmoothL1Loss { .. }
        | BceWithLogits { .. }
        | KlDiv { .. } => (loss::supports, loss::apply),
    }
}
