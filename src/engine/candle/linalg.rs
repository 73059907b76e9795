//! Matrix products.

use candle_core::{Result, Tensor};
use candle_nn::Module;

use super::situation::{Situation, arg, contiguous_if_refused, not_mine};
use crate::engine::Support;
use crate::program::Op;

pub(super) fn supports(op: &Op, _s: &Situation<'_>) -> Support {
    match op {
        Op::Addmm { .. } | Op::Baddbmm { .. } => Support::Decomposed("matmul + scale + add"),
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let y = match op {
        Op::Mm {} | Op::Bmm {} => contiguous_if_refused(arg(x, 0)?, arg(x, 1)?, Tensor::matmul)?,
        Op::Matmul {} => contiguous_if_refused(arg(x, 0)?, arg(x, 1)?, Tensor::broadcast_matmul)?,
        Op::Addmm { beta, alpha } | Op::Baddbmm { beta, alpha } => {
            let product = contiguous_if_refused(arg(x, 1)?, arg(x, 2)?, Tensor::matmul)?;
            scaled(&product, *alpha)?.broadcast_add(&scaled(arg(x, 0)?, *beta)?)?
        }
        Op::Linear {} => linear(op, s, x)?,
        _ => return not_mine(op),
    };
    Ok(vec![y])
}

fn scaled(x: &Tensor, factor: f64) -> Result<Tensor> {
    if factor == 1.0 { Ok(x.clone()) } else { x * factor }
}

/// `candle_nn::Linear`, which takes 2 to 4 dimensions; others are folded into two.
fn linear(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Tensor> {
    let (input, weight) = (arg(x, 0)?, arg(x, 1)?);
    let layer = candle_nn::Linear::new(weight.clone(), x.get(2).map(|bias| (*bias).clone()));
    let forward = |input: &Tensor, _: &Tensor| layer.forward(input);
    if (2..=4).contains(&input.rank()) {
        return contiguous_if_refused(input, input, forward);
    }
    let flat = input.reshape(((), weight.dim(1)?))?;
    contiguous_if_refused(&flat, &flat, forward)?.reshape(s.output(op)?)
}
