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

    /// Whether only exact arithmetic (+, −, ·, ÷, √) rounds, no elementary function.
    #[must_use]
    pub const fn is_arithmetic(&self) -> bool {
        use Op::*;
        matches!(
            self,
            Add {}
                | Sub {}
                | Mul {}
                | Div {}
                | AddScalar { .. }
                | MulScalar { .. }
                | Reciprocal {}
                | Sqrt {}
                | LeakyRelu { .. }
                | Hardswish {}
                | UpsampleBilinear2d { .. }
                | Cast { .. }
                | Dropout { .. }
                | MseLoss { .. }
                | L1Loss { .. }
                | SmoothL1Loss { .. }
                | NllLoss { .. }
        )
    }

    /// Role of the computation of the cotangent of input `index`: that of the operator,
    /// unless the cotangent is only moved (exact) or summed.
    #[must_use]
    pub fn backward_role(&self, index: usize, inputs: &[&Value], outputs: &[&Value]) -> Role {
        use Op::*;
        let summed = self.backward_terms(index, inputs, outputs) > 1;
        let moved = if summed { Role::Reduction } else { Role::Exact };
        match self {
            // Sums of cotangents over tokens or positions.
            Linear {} | Conv1d { .. } | Conv2d { .. } | ConvTranspose1d { .. } | ConvTranspose2d { .. }
                if index == 2 =>
            {
                Role::Reduction
            }
            Addmm { .. } | Baddbmm { .. } if index == 0 => Role::Reduction,
            LayerNorm { .. } | RmsNorm { .. } | GroupNorm { .. } | BatchNorm { .. } if index > 0 => {
                Role::Reduction
            }
            // Cotangents of additions are copies; a broadcast operand's are summed.
            Add {} | Sub {} | AddScalar { .. } | Sum { .. } | ScatterAdd { .. } | IndexPut { .. } => moved,
            Mul {} | Div {} if summed => Role::Reduction,
            Mean { .. } | Var { .. } => Role::Elementwise,
            _ if self.role() == Role::Exact => moved,
            _ => self.role(),
        }
    }

    /// Length of the longest inner reduction in the cotangent of input `index`; 1 where
    /// nothing is summed. Repetitions of an index are not known from the types: lengths of
    /// gathers are their mean multiplicity.
    #[must_use]
    pub fn backward_terms(&self, index: usize, inputs: &[&Value], outputs: &[&Value]) -> usize {
        use Op::*;
        let elements = |v: Option<&&Value>| v.map_or(1, |v| v.shape.iter().product::<usize>());
        let shape = |i: usize| inputs.get(i).map_or(&[][..], |v| v.shape.as_slice());
        let from_end = |i: usize, k: usize| shape(i).iter().rev().nth(k).copied().unwrap_or(1);
        let out = elements(outputs.first());
        // Elements of the result for each element of this input, by broadcasting.
        let spread = |size: usize| size / elements(inputs.get(index)).max(1);
        let n = match self {
            // In `a @ b` the cotangent of a sums over b's columns, that of b over a's rows;
            // operands that were broadcast also over the batch.
            Mm {} | Bmm {} | Matmul {} | Addmm { .. } | Baddbmm { .. } => {
                let offset = usize::from(matches!(self, Addmm { .. } | Baddbmm { .. }));
                let batch = |rows: usize, columns: usize| out / (rows * columns).max(1);
                let (rows, columns) = (from_end(offset, 1), from_end(offset + 1, 0));
                let own = shape(index).iter().rev().skip(2).product::<usize>().max(1);
                let shared = (batch(rows, columns) / own).max(1);
                match index.checked_sub(offset) {
                    None => spread(out),
                    Some(0) => columns * shared,
                    Some(_) => rows * shared,
                }
            }
            Linear {} => {
                let features = shape(1).first().copied().unwrap_or(1);
                if index == 0 { features } else { out / features.max(1) }
            }
            Conv1d { groups, .. } | Conv2d { groups, .. } => {
                let weight = shape(1);
                let window: usize = weight.iter().skip(2).product();
                let channels = weight.first().copied().unwrap_or(1);
                if index == 0 { channels / (*groups).max(1) * window } else { out / channels.max(1) }
            }
            ConvTranspose1d { .. } | ConvTranspose2d { .. } => match index {
                0 => shape(1).iter().skip(1).product(),
                1 => elements(inputs.first()) / shape(1).first().copied().unwrap_or(1).max(1),
                _ => out / elements(inputs.get(2)).max(1),
            },
            LayerNorm { .. } | RmsNorm { .. } | GroupNorm { .. } => {
                if index == 0 {
                    self.forward_terms(inputs, outputs)
                } else {
                    spread(out)
                }
            }
            BatchNorm { training, .. } => match index {
                0 if *training => self.forward_terms(inputs, outputs),
                0 => 1,
                _ => spread(out),
            },
            ScaledDotProductAttention { .. } => match index {
                // dq and the scores' gradient sum over keys, dk and dv over queries.
                0 => from_end(1, 1).max(from_end(2, 0)),
                1 | 2 => from_end(0, 1).max(from_end(2, 0)),
                _ => out / from_end(2, 0).max(1) * from_end(1, 1) / elements(inputs.get(3)).max(1),
            },
            Softmax { .. } | LogSoftmax { .. } | Cumsum { .. } => self.forward_terms(inputs, outputs),
            Embedding {} => {
                let table = shape(0).first().copied().unwrap_or(1);
                elements(inputs.get(1)).div_ceil(table.max(1))
            }
            IndexSelect { .. } | Gather { .. } => out.div_ceil(elements(inputs.first()).max(1)),
            Add {} | Sub {} | Mul {} | Div {} | Maximum {} | Minimum {} | Where {} | Expand { .. } => {
                spread(out)
            }
            RepeatInterleave { repeats, .. } => *repeats,
            MaxPool2d { kernel_size, stride, .. } | AvgPool2d { kernel_size, stride, .. } => {
                (0..2).map(|i| kernel_size[i].div_ceil(stride[i].max(1))).product()
            }
            AdaptiveAvgPool2d { .. } | UpsampleNearest2d { .. } | UpsampleBilinear2d { .. } => {
                out.div_ceil(elements(inputs.first()).max(1))
            }
            CrossEntropy { .. } => from_end(0, 0),
            _ => 1,
        };
        n.max(1)
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
            Addmm { .. } | Baddbmm { .. } | ScatterAdd { .. } => dim(1, 0),
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

    fn value(shape: &[usize]) -> Value {
        Value { shape: shape.to_vec(), dtype: DType::F32 }
    }

    #[test]
    fn gradients_of_a_linear_layer_reduce_over_outputs_and_tokens() {
        let (x, w, b) = (value(&[8, 197, 192]), value(&[768, 192]), value(&[768]));
        let y = value(&[8, 197, 768]);
        let terms = |index| Op::Linear {}.backward_terms(index, &[&x, &w, &b], &[&y]);
        assert_eq!([terms(0), terms(1), terms(2)], [768, 8 * 197, 8 * 197]);
        let role = |index| Op::Linear {}.backward_role(index, &[&x, &w, &b], &[&y]);
        assert_eq!([role(0), role(1), role(2)], [Role::Matmul, Role::Matmul, Role::Reduction]);
    }

    #[test]
    fn gradients_of_a_convolution_reduce_over_window_and_positions() {
        let (x, w, y) = (value(&[4, 6, 8, 8]), value(&[10, 3, 3, 3]), value(&[4, 10, 8, 8]));
        let conv = Op::Conv2d { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 2 };
        let terms = |index| conv.backward_terms(index, &[&x, &w], &[&y]);
        assert_eq!([terms(0), terms(1)], [5 * 9, 4 * 64]);
    }

    #[test]
    fn gradients_of_norms_and_broadcast_operands_reduce_over_what_was_repeated() {
        let (x, w) = (value(&[8, 10, 64]), value(&[64]));
        let norm = Op::LayerNorm { normalized_shape: vec![64], eps: 1e-5 };
        assert_eq!(norm.backward_terms(0, &[&x, &w, &w], &[&x]), 64);
        assert_eq!(norm.backward_terms(1, &[&x, &w, &w], &[&x]), 80);
        assert_eq!(Op::Add {}.backward_terms(1, &[&x, &w], &[&x]), 80);
        assert_eq!(Op::Add {}.backward_role(1, &[&x, &w], &[&x]), Role::Reduction);
        assert_eq!(Op::Add {}.backward_role(0, &[&x, &w], &[&x]), Role::Exact);
        assert_eq!(Op::Relu {}.backward_role(0, &[&x], &[&x]), Role::Exact);
    }

    #[test]
    fn gradients_of_matrix_products_reduce_over_columns_rows_and_shared_batches() {
        let (a, b, y) = (value(&[5, 3, 4]), value(&[4, 2]), value(&[5, 3, 2]));
        assert_eq!(Op::Matmul {}.backward_terms(0, &[&a, &b], &[&y]), 2);
        assert_eq!(Op::Matmul {}.backward_terms(1, &[&a, &b], &[&y]), 15);
        let bias = value(&[2]);
        let op = Op::Baddbmm { beta: 1.0, alpha: 1.0 };
        let b = value(&[5, 4, 2]);
        assert_eq!(op.backward_terms(0, &[&bias, &a, &b], &[&y]), 15);
        assert_eq!(op.backward_terms(2, &[&bias, &a, &b], &[&y]), 3);
    }
}
