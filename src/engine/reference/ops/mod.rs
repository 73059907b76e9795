//! One file a family; each operator's forward computation stands beside its
//! vector-Jacobian product.
//!
//! Shapes, dtypes and attributes were checked by inference before an operator gets here;
//! values (indices, labels) are checked here.

mod attention;
mod batch_norm;
mod binary;
mod conv;
mod conv_terms;
mod index;
mod linalg;
mod loss;
mod norm;
mod order;
mod pointwise;
mod pool;
mod products;
mod reduce;
mod shape;
mod softmax;
mod upsample;

use super::applied::{Applied, Arguments, Fault, Site};
use super::tensor::Data;
use crate::program::{Op, normalize_dim};

/// Applies one operator.
pub(super) fn apply(op: &Op, inputs: &[Data], site: &Site<'_>) -> Result<Applied, Fault> {
    use Op::*;
    let x = Arguments(inputs);
    match op {
        Mm {} | Bmm {} | Matmul {} => linalg::matmul(x, site),
        Addmm { beta, alpha } | Baddbmm { beta, alpha } => linalg::addmm(x, *beta, *alpha, site),
        Linear {} => linalg::linear(x, site),
        Conv1d { .. } | Conv2d { .. } => conv::conv(op, x, site),
        ConvTranspose1d { .. } | ConvTranspose2d { .. } => conv::conv_transpose(op, x, site),
        MaxPool2d { .. } => pool::max_pool(op, x, site),
        AvgPool2d { .. } | AdaptiveAvgPool2d { .. } => pool::avg_pool(op, x, site),
        LayerNorm { normalized_shape, eps } => norm::layer_norm(x, normalized_shape, *eps, site),
        RmsNorm { normalized_shape, eps } => norm::rms_norm(x, normalized_shape, *eps, site),
        GroupNorm { num_groups, eps } => norm::group_norm(x, *num_groups, *eps, site),
        BatchNorm { training, momentum, eps } => batch_norm::batch_norm(x, *training, *momentum, *eps, site),
        Add {} | Sub {} | Mul {} | Div {} | Maximum {} | Minimum {} => binary::binary(op, x, site),
        Dropout { p } => binary::dropout(x, *p),
        Where {} => binary::select(x, site),
        MaskedFill { value } => binary::masked_fill(x, *value),
        Softmax { dim } => softmax::softmax(x, *dim),
        LogSoftmax { dim } => softmax::log_softmax(x, *dim, site),
        ScaledDotProductAttention { is_causal, scale } => attention::attention(x, *is_causal, *scale, site),
        Sum { dims, .. } => reduce::sum(x, dims, site),
        Mean { dims, .. } => reduce::mean(x, dims, site),
        Var { dims, correction, .. } => reduce::var(x, dims, *correction, site),
        Amax { dims, .. } => reduce::extremum(x, dims, site, true),
        Amin { dims, .. } => reduce::extremum(x, dims, site, false),
        Logsumexp { dims, .. } => reduce::logsumexp(x, dims, site),
        Cumsum { dim } => reduce::cumsum(x, *dim),
        Argmax { dim, .. } => order::argmax(x, *dim, site),
        Topk { k, dim, largest } => order::ordered(x, *dim, *k, *largest),
        Sort { dim, descending } => order::sort(x, *dim, *descending),
        Embedding {} => index::embedding(x, site),
        IndexSelect { dim } => index::index_select(x, *dim),
        Gather { dim } => index::gather(x, *dim),
        ScatterAdd { dim } => index::scatter_add(x, *dim, site),
        IndexPut { accumulate } => index::index_put(x, *accumulate),
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
        | RepeatInterleave { .. } => shape::shape(op, inputs, site),
        UpsampleNearest2d { .. } | UpsampleBilinear2d { .. } => upsample::upsample(op, x, site),
        CrossEntropy { .. } | NllLoss { .. } => loss::classification(op, x, site),
        MseLoss { reduction } => loss::mse(x, *reduction, site),
        L1Loss { reduction } => loss::l1(x, *reduction, site),
        SmoothL1Loss { beta, reduction } => loss::smooth_l1(x, *beta, *reduction, site),
        BceWithLogits { reduction } => loss::bce_with_logits(x, *reduction, site),
        KlDiv { log_target, reduction } => loss::kl_div(x, *log_target, *reduction, site),
        _ => pointwise::pointwise(op, x),
    }
}

/// A dimension in `0..rank`.
fn axis(dim: isize, rank: usize) -> Result<usize, Fault> {
    normalize_dim(dim, rank).map_err(|e| e.to_string())
}

/// Dimensions in `0..rank`; all of them when none is named.
fn axes(dims: &[isize], rank: usize) -> Result<Vec<usize>, Fault> {
    if dims.is_empty() {
        return Ok((0..rank).collect());
    }
    dims.iter().map(|dim| axis(*dim, rank)).collect()
}
