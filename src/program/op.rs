//! The closed operator set: `ATen`'s core names, argument order and semantics.
//!
//! Tensor arguments are the node's inputs, in `ATen`'s order, optional ones last and left
//! out; everything else is a named field. Dimensions may be negative, as in `ATen`.

use serde::{Deserialize, Serialize};

use crate::numerics::DType;

/// Approximation of `gelu`, as in `torch.nn.functional.gelu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gelu {
    /// x·Φ(x) by the error function.
    None,
    /// The tanh approximation.
    Tanh,
}

/// Reduction of a loss over its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossReduction {
    /// Mean (weighted mean for `cross_entropy` and `nll_loss`); `kl_div` divides by all elements.
    Mean,
    /// Sum.
    Sum,
    /// Mean over the first dimension of the sum (`kl_div` only).
    BatchMean,
}

/// Declares [`Op`] and its name table from one list.
macro_rules! operators {
    ($( $(#[$meta:meta])* $variant:ident $name:literal { $( $(#[$fmeta:meta])* $field:ident : $ty:ty ),* $(,)? } )*) => {
        /// One operator with its attributes.
        #[expect(missing_docs, reason = "fields are `ATen`'s arguments under their own names")]
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "op")]
        pub enum Op {
            $( $(#[$meta])* #[serde(rename = $name)] $variant { $( $(#[$fmeta])* $field: $ty ),* } ),*
        }

        /// [`Op`] without its attributes: what capability sets and tables are keyed by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each variant is documented at `Op`")]
        pub enum OpKind { $( $variant ),* }

        impl OpKind {
            /// Every operator of the set, in the order of its definition.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),* ];

            /// `ATen`'s name of the operator.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name ),* }
            }
        }

        impl Op {
            /// The operator without its attributes.
            #[must_use]
            pub const fn kind(&self) -> OpKind {
                match self { $( Self::$variant { .. } => OpKind::$variant ),* }
            }
        }
    };
}

operators! {
    // Linear algebra.
    /// `[n,k] @ [k,m]`.
    Mm "mm" {}
    /// `[b,n,k] @ [b,k,m]`.
    Bmm "bmm" {}
    /// Batched matrix product with broadcast batch dimensions; both operands at least 2-d.
    Matmul "matmul" {}
    /// `beta·bias + alpha·(a @ b)`; inputs bias, a, b.
    Addmm "addmm" { beta: f64, alpha: f64 }
    /// `beta·bias + alpha·(a @ b)` over a batch; inputs bias, a, b.
    Baddbmm "baddbmm" { beta: f64, alpha: f64 }
    /// `x @ weightᵀ (+ bias)`; inputs x `[.., in]`, weight `[out, in]`, optional bias `[out]`.
    Linear "linear" {}

    // Convolution: inputs x, weight, optional bias.
    /// x `[n, c, l]`, weight `[o, c/groups, k]`.
    Conv1d "conv1d" { stride: usize, padding: usize, dilation: usize, groups: usize }
    /// x `[n, c, h, w]`, weight `[o, c/groups, kh, kw]`.
    Conv2d "conv2d" { stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], groups: usize }
    /// x `[n, c, l]`, weight `[c, o/groups, k]`.
    ConvTranspose1d "conv_transpose1d" { stride: usize, padding: usize, output_padding: usize, groups: usize, dilation: usize }
    /// x `[n, c, h, w]`, weight `[c, o/groups, kh, kw]`.
    ConvTranspose2d "conv_transpose2d" { stride: [usize; 2], padding: [usize; 2], output_padding: [usize; 2], groups: usize, dilation: [usize; 2] }

    // Pooling over the last two dimensions.
    /// Maximum over windows; padding counts as −∞.
    MaxPool2d "max_pool2d" { kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2], ceil_mode: bool }
    /// Mean over windows.
    AvgPool2d "avg_pool2d" { kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], ceil_mode: bool, count_include_pad: bool }
    /// Mean over windows `floor(i·h/oh) .. ceil((i+1)·h/oh)`.
    AdaptiveAvgPool2d "adaptive_avg_pool2d" { output_size: [usize; 2] }

    // Normalisation. Variances are the biased ones.
    /// Over the trailing `normalized_shape`; inputs x, weight, bias (both or none).
    LayerNorm "layer_norm" { normalized_shape: Vec<usize>, eps: f64 }
    /// `x / sqrt(mean(x²) + eps) · weight`; inputs x, optional weight.
    RmsNorm "rms_norm" { normalized_shape: Vec<usize>, eps: f64 }
    /// Over groups of channels (dimension 1); inputs x, weight, bias (both or none).
    GroupNorm "group_norm" { num_groups: usize, eps: f64 }
    /// Over all dimensions but 1; inputs x, weight, bias, `running_mean`, `running_var`.
    /// Evaluation: one output. Training: three, the output and both updated statistics
    /// (`(1-momentum)·old + momentum·batch`, the unbiased variance for `running_var`).
    BatchNorm "batch_norm" { training: bool, momentum: f64, eps: f64 }

    // Elementwise, one input.
    /// max(x, 0); NaN stays NaN.
    Relu "relu" {}
    /// Gaussian error linear unit.
    Gelu "gelu" { approximate: Gelu }
    /// x·sigmoid(x).
    Silu "silu" {}
    /// 1/(1+exp(−x)).
    Sigmoid "sigmoid" {}
    /// Hyperbolic tangent.
    Tanh "tanh" {}
    /// log(1+exp(beta·x))/beta; linear where beta·x > threshold.
    Softplus "softplus" { beta: f64, threshold: f64 }
    /// x where x > 0, else `negative_slope`·x.
    LeakyRelu "leaky_relu" { negative_slope: f64 }
    /// x·clamp(x+3, 0, 6)/6.
    Hardswish "hardswish" {}
    /// e^x.
    Exp "exp" {}
    /// Natural logarithm.
    Log "log" {}
    /// Square root.
    Sqrt "sqrt" {}
    /// 1/sqrt(x).
    Rsqrt "rsqrt" {}
    /// 1/x.
    Reciprocal "reciprocal" {}
    /// Error function.
    Erf "erf" {}
    /// Sine.
    Sin "sin" {}
    /// Cosine.
    Cos "cos" {}
    /// Absolute value; gradient 0 at 0.
    Abs "abs" {}
    /// −x.
    Neg "neg" {}
    /// x^exponent with a constant exponent.
    PowScalar "pow" { exponent: f64 }
    /// Clamp to [min, max]; gradient passes where min <= x <= max.
    Clamp "clamp" { min: Option<f64>, max: Option<f64> }
    /// x + value.
    AddScalar "add_scalar" { value: f64 }
    /// x · value.
    MulScalar "mul_scalar" { value: f64 }

    // Elementwise, two inputs with broadcasting.
    /// a + b.
    Add "add" {}
    /// a − b.
    Sub "sub" {}
    /// a · b.
    Mul "mul" {}
    /// a / b.
    Div "div" {}
    /// Larger of two; NaN wins; at ties half the gradient to each.
    Maximum "maximum" {}
    /// Smaller of two; NaN wins; at ties half the gradient to each.
    Minimum "minimum" {}

    // Softmax and attention.
    /// Softmax along `dim`.
    Softmax "softmax" { dim: isize }
    /// Logarithm of the softmax along `dim`.
    LogSoftmax "log_softmax" { dim: isize }
    /// softmax(q kᵀ · scale + mask) v; inputs q `[.., l, e]`, k `[.., s, e]`, v `[.., s, ev]`,
    /// optional additive mask broadcastable to `[.., l, s]`. `scale` defaults to 1/sqrt(e).
    ScaledDotProductAttention "scaled_dot_product_attention" { is_causal: bool, scale: Option<f64> }

    // Reductions.
    /// Sum over `dims` (all when empty).
    Sum "sum" { dims: Vec<isize>, keepdim: bool }
    /// Mean over `dims` (all when empty).
    Mean "mean" { dims: Vec<isize>, keepdim: bool }
    /// Variance over `dims` (all when empty) with divisor n − correction.
    Var "var" { dims: Vec<isize>, correction: f64, keepdim: bool }
    /// Maximum over `dims` (all when empty); the gradient is shared evenly among ties.
    Amax "amax" { dims: Vec<isize>, keepdim: bool }
    /// Minimum over `dims` (all when empty); the gradient is shared evenly among ties.
    Amin "amin" { dims: Vec<isize>, keepdim: bool }
    /// log(sum(exp(x))) over `dims`.
    Logsumexp "logsumexp" { dims: Vec<isize>, keepdim: bool }
    /// Running sum along `dim`.
    Cumsum "cumsum" { dim: isize }
    /// Index of the (first) maximum along `dim`; `I64`, no gradient.
    Argmax "argmax" { dim: isize, keepdim: bool }
    /// The k largest (smallest) along `dim`, sorted; outputs values and `I64` indices.
    Topk "topk" { k: usize, dim: isize, largest: bool }
    /// Stable sort along `dim`; outputs values and `I64` indices.
    Sort "sort" { dim: isize, descending: bool }

    // Indexing.
    /// Rows of a table; inputs weight `[v, d]`, indices (`I64`, any shape).
    Embedding "embedding" {}
    /// Inputs x, index `[n]` (`I64`).
    IndexSelect "index_select" { dim: isize }
    /// Inputs x, index (`I64`, same rank as x).
    Gather "gather" { dim: isize }
    /// Inputs x, index (`I64`), source; adds source at index along `dim`.
    ScatterAdd "scatter_add" { dim: isize }
    /// Inputs x, index `[n]` (`I64`, first dimension), values `[n, ..]`.
    IndexPut "index_put" { accumulate: bool }
    /// Inputs condition (`U8`), a, b, with broadcasting.
    Where "where" {}
    /// Inputs x, mask (`U8`, broadcastable to x).
    MaskedFill "masked_fill" { value: f64 }

    // Shape.
    /// Row-major reinterpretation; one dimension may be −1.
    Reshape "reshape" { shape: Vec<isize> }
    /// Reorders dimensions.
    Permute "permute" { dims: Vec<isize> }
    /// Broadcasts size-1 (and new leading) dimensions; −1 keeps a dimension.
    Expand "expand" { shape: Vec<isize> }
    /// `x[start..end; step]` along `dim`; bounds may be negative or beyond the end.
    Slice "slice" { dim: isize, start: isize, end: isize, step: usize }
    /// `x[index]` along `dim`, which disappears.
    Select "select" { dim: isize, index: isize }
    /// Concatenation along `dim`.
    Cat "cat" { dim: isize }
    /// Concatenation along a new `dim`.
    Stack "stack" { dim: isize }
    /// Pieces of `split_size` along `dim` (the last may be smaller); one output each.
    Split "split" { split_size: usize, dim: isize }
    /// Constant padding; pairs (before, after) from the last dimension backwards; may be negative.
    Pad "constant_pad_nd" { pad: Vec<isize>, value: f64 }
    /// Cyclic shift along `dims`.
    Roll "roll" { shifts: Vec<isize>, dims: Vec<isize> }
    /// Reversal along `dims`.
    Flip "flip" { dims: Vec<isize> }
    /// Each slice `repeats` times along `dim`.
    RepeatInterleave "repeat_interleave" { repeats: usize, dim: isize }

    // Upsampling of the last two dimensions.
    /// Nearest neighbour: source index floor(i·h/oh).
    UpsampleNearest2d "upsample_nearest2d" { output_size: [usize; 2] }
    /// Bilinear interpolation.
    UpsampleBilinear2d "upsample_bilinear2d" { output_size: [usize; 2], align_corners: bool }

    // Losses: inputs prediction, target; scalar output.
    /// Logits `[n, c]`, target `[n]` (`I64`), optional class weights `[c]`.
    CrossEntropy "cross_entropy_loss" { ignore_index: i64, label_smoothing: f64, reduction: LossReduction }
    /// Log-probabilities `[n, c]`, target `[n]` (`I64`), optional class weights `[c]`.
    NllLoss "nll_loss" { ignore_index: i64, reduction: LossReduction }
    /// (a − b)².
    MseLoss "mse_loss" { reduction: LossReduction }
    /// |a − b|.
    L1Loss "l1_loss" { reduction: LossReduction }
    /// Quadratic below `beta`, linear above.
    SmoothL1Loss "smooth_l1_loss" { beta: f64, reduction: LossReduction }
    /// Binary cross-entropy of logits.
    BceWithLogits "binary_cross_entropy_with_logits" { reduction: LossReduction }
    /// target·(log target − input); with `log_target` the target is a logarithm too.
    KlDiv "kl_div" { log_target: bool, reduction: LossReduction }

    // Others.
    /// Conversion to another float dtype.
    Cast "_to_copy" { dtype: DType }
    /// `x · mask / (1 − p)` with a mask (`U8`) that was drawn on the host; inputs x, mask.
    Dropout "native_dropout" { p: f64 }
}

impl Op {
    /// `ATen`'s name of the operator.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.kind().name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = OpKind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OpKind::ALL.len());
    }

    #[test]
    fn an_operator_is_written_and_read_with_its_name_and_attributes() {
        let op = Op::LayerNorm { normalized_shape: vec![4], eps: 1e-5 };
        let text = serde_json::to_string(&op).unwrap();
        assert_eq!(text, r#"{"op":"layer_norm","normalized_shape":[4],"eps":0.00001}"#);
        assert_eq!(serde_json::from_str::<Op>(&text).unwrap(), op);
    }
}
