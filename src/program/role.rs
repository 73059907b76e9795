//! What kind of arithmetic an operator does, and over how many terms: what the error model
//! needs to know of a node.

use super::{Op, Value};
use crate::numerics::Role;

impl Op {
    /// Role of the operator: which line of the error model and of the policy applies.
    #[must_use]
    pub const fn role(&self) -> Role {
        use Op::*;
        match self {
            Mm {} | Bmm {} | Matmul {} | Addmm { .. } | Baddbmm { .. } | Linear {} => Role::Matmul,
            Conv1d { .. } | Conv2d { .. } | ConvTranspose1d { .. } | ConvTranspose2d { .. } => Role::Conv,
            LayerNorm { .. } | RmsNorm { .. } | GroupNorm { .. } | BatchNorm { .. } => Role::Normalisation,
            Softmax { .. } | LogSoftmax { .. } | Logsumexp { .. } => Role::Softmax,
            ScaledDotProductAttention { .. } => Role::Attention,
            Sum { .. }
            | Mean { .. }
            | Var { .. }
            | Cumsum { .. }
            | AvgPool2d { .. }
            | AdaptiveAvgPool2d { .. }
            | ScatterAdd { .. }
            | IndexPut { .. } => Role::Reduction,
            CrossEntropy { .. }
            | NllLoss { .. }
            | MseLoss { .. }
            | L1Loss { .. }
            | SmoothL1Loss { .. }
            | BceWithLogits { .. }
            | KlDiv { .. } => Role::Loss,
            Relu {}
            | Maximum {}
            | Minimum {}
            | Abs {}
            | Neg {}
            | Clamp { .. }
            | Amax { .. }
            | Amin { .. }
            | Argmax { .. }
            | Topk { .. }
            | Sort { .. }
            | MaxPool2d { .. }
            | Embedding {}
            | IndexSelect { .. }
            | Gather { .. }
            | Where {}
            | MaskedFill { .. }
            | Reshape { .. }
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
            | RepeatInterleave { .. }
            | UpsampleNearest2d { .. } => Role::Exact,
            Gelu { .. }
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
            | PowScalar { .. }
            | AddScalar { .. }
            | MulScalar { .. }
            | Add {}
            | Sub {}
            | Mul {}
            | Div {}
            | UpsampleBilinear2d { .. }
            | Cast { .. }
            | Dropout { .. } => Role::Elementwise,
        }
    }

    /// Length of the longest inner reduction of the forward computation, given the types of
    /// the arguments and results; 1 where nothing is reduced.
    #[must_use]
    pub fn forward_terms(&self, inputs: &[&Value], outputs: &[&Value]) -> usize {
        use Op::*;
        let dim = |i: usize, from_end: usize| {
            inputs.get(i).and_then(|v| v.shape.iter().rev().nth(from_end)).copied().unwrap_or(1)
        };
        let elements = |v: Option<&&Value>| v.map_or(1, |v| v.shape.iter().product::<usize>());
        let ratio = || elements(inputs.first()) / elements(outputs.first()).max(1);
        let n = match self {
            Mm {} | Bmm {} | Matmul {} | Linear {} => dim(0, 0),
            Addmm { .. } | Baddbmm { .. } => dim(1, 0),
            Conv1d { .. } | Conv2d { .. } => inputs.get(1).map_or(1, |w| w.shape.iter().skip(1).product()),
            ConvTranspose1d { groups, .. } | ConvTranspose2d { groups, .. } => {
                let w = inputs.get(1).map_or(&[][..], |w| &w.shape);
                let window: usize = w.iter().skip(2).product();
                w.first().copied().unwrap_or(1) / (*groups).max(1) * window
            }
            ScaledDotProductAttention { .. } => dim(0, 0).max(dim(1, 1)),
            AvgPool2d { kernel_size, .. } => kernel_size[0] * kernel_size[1],
            LayerNorm { normalized_shape, .. } | RmsNorm { normalized_shape, .. } => {
                normalized_shape.iter().product()
            }
            GroupNorm { num_groups, .. } => {
                let batch = inputs.first().and_then(|v| v.shape.first()).copied().unwrap_or(1);
                elements(inputs.first()) / (batch * num_groups).max(1)
            }
            BatchNorm { training: true, .. } => elements(inputs.first()) / elements(inputs.get(1)).max(1),
            Softmax { dim } | LogSoftmax { dim } | Cumsum { dim } => inputs
                .first()
                .map_or(1, |v| super::normalize_dim(*dim, v.shape.len()).map_or(1, |d| v.shape[d])),
            Sum { .. } | Mean { .. } | Var { .. } | Logsumexp { .. } | AdaptiveAvgPool2d { .. } => ratio(),
            ScatterAdd { .. } => dim(1, 0),
            IndexPut { .. } => elements(inputs.get(1)),
            CrossEntropy { .. }
            | NllLoss { .. }
            | MseLoss { .. }
            | L1Loss { .. }
            | SmoothL1Loss { .. }
            | BceWithLogits { .. }
            | KlDiv { .. } => elements(inputs.first()),
            _ => 1,
        };
        n.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::DType;

    #[test]
    fn a_linear_layer_reduces_over_its_inputs() {
        let x = Value { shape: vec![8, 197, 192], dtype: DType::F32 };
        let w = Value { shape: vec![768, 192], dtype: DType::F32 };
        let y = Value { shape: vec![8, 197, 768], dtype: DType::F32 };
        assert_eq!(Op::Linear {}.forward_terms(&[&x, &w], &[&y]), 192);
        assert_eq!(Op::Linear {}.role(), Role::Matmul);
    }

    #[test]
    fn a_sum_reduces_what_disappears() {
        let x = Value { shape: vec![4, 5], dtype: DType::F32 };
        let y = Value { shape: vec![4], dtype: DType::F32 };
        let sum = Op::Sum { dims: vec![1], keepdim: false };
        assert_eq!(sum.forward_terms(&[&x], &[&y]), 5);
    }
}
