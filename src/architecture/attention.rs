//! Multi-head attention, shared by the transformer families.

use super::vit::signed;
use crate::program::{Builder, Op, ValueId};

/// What distinguishes the attention of one model from another's.
pub(super) struct Attention {
    /// Number of heads; divides the width.
    pub heads: usize,
    /// Whether a position sees only itself and those before it.
    pub is_causal: bool,
    /// Dropout of the probabilities.
    pub dropout: f64,
}

/// Attention of `q`, `k`, `v` `[batch, tokens, width]`; the result has that shape too.
///
/// Without dropout this is one `scaled_dot_product_attention`. With dropout the mask must
/// come from the batch, which the whole operator has no argument for, so that products,
/// softmax and dropout are nodes of their own, in the order of the original's eager form.
pub(super) fn attention(b: &mut Builder, spec: &Attention, q: ValueId, k: ValueId, v: ValueId) -> ValueId {
    let &[batch, tokens, width] = b.shape(q) else { return q }; // an earlier error is kept
    let (heads, size) = (spec.heads, width / spec.heads.max(1));
    let split = |b: &mut Builder, x: ValueId| {
        let shape = [batch, tokens, heads, size].map(signed).to_vec();
        let x = b.apply(Op::Reshape { shape }, &[x]);
        b.apply(Op::Permute { dims: vec![0, 2, 1, 3] }, &[x])
    };
    let (q, k, v) = (split(b, q), split(b, k), split(b, v));
    let y = if spec.dropout == 0.0 {
        b.apply(Op::ScaledDotProductAttention { is_causal: spec.is_causal, scale: None }, &[q, k, v])
    } else {
        let k = b.apply(Op::Permute { dims: vec![0, 1, 3, 2] }, &[k]);
        let scores = b.apply(Op::Matmul {}, &[q, k]);
        let scores = b.apply(Op::MulScalar { value: 1.0 / (size as f64).sqrt() }, &[scores]);
        let scores = if spec.is_causal { mask_future(b, scores, tokens) } else { scores };
        let p = b.apply(Op::Softmax { dim: -1 }, &[scores]);
        let p = b.dropout(p, spec.dropout);
        b.apply(Op::Matmul {}, &[p, v])
    };
    let y = b.apply(Op::Permute { dims: vec![0, 2, 1, 3] }, &[y]);
    b.apply(Op::Reshape { shape: [batch, tokens, width].map(signed).to_vec() }, &[y])
}

/// Scores of later positions become the lowest finite f32, as in the original: the softmax is
/// exactly 0 there. (An infinity could not be written to `program.json`.)
fn mask_future(b: &mut Builder, scores: ValueId, tokens: usize) -> ValueId {
    let mask = b.causal_mask(tokens);
    b.apply(Op::MaskedFill { value: f64::from(f32::MIN) }, &[scores, mask])
}
