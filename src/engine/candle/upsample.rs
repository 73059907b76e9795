//! Upsampling of the last two dimensions.

use candle_core::{Result, Tensor};

use super::situation::{Situation, arg, constants, indices, not_mine};
use crate::engine::Support;
use crate::program::Op;

pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    match op {
        Op::UpsampleNearest2d { output_size } if !native_nearest(*output_size, s) => {
            Support::Decomposed("index_select")
        }
        Op::UpsampleBilinear2d { .. } if s.training() => {
            Support::Decomposed("matmul with interpolation weights")
        }
        _ => Support::Native,
    }
}

pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let input = arg(x, 0)?;
    let (h, w) = (s.dim(0, 2), s.dim(0, 3));
    let y = match op {
        Op::UpsampleNearest2d { output_size: [oh, ow] } => {
            if native_nearest([*oh, *ow], s) {
                input.upsample_nearest2d(*oh, *ow)
            } else {
                let rows = indices((0..*oh).map(|i| i * h / oh), input)?;
                let columns = indices((0..*ow).map(|i| i * w / ow), input)?;
                input.contiguous()?.index_select(&rows, 2)?.index_select(&columns, 3)
            }
        }
        Op::UpsampleBilinear2d { output_size: [oh, ow], align_corners } => {
            if s.training() {
                let rows = constants(&interpolation(h, *oh, *align_corners), &[*oh, h], input)?;
                let columns = constants(&interpolation(w, *ow, *align_corners), &[*ow, w], input)?;
                rows.broadcast_matmul(&input.contiguous()?)?.broadcast_matmul(&columns.t()?)
            } else {
                input.upsample_bilinear2d(*oh, *ow, *align_corners)
            }
        }
        _ => not_mine(op),
    };
    Ok(vec![y?])
}

/// candle's backward needs one integer factor for both dimensions, and a convolution.
fn native_nearest(output: [usize; 2], s: &Situation<'_>) -> bool {
    let (h, w) = (s.dim(0, 2), s.dim(0, 3));
    let [oh, ow] = output;
    let one_factor = h > 0 && w > 0 && oh.is_multiple_of(h) && ow.is_multiple_of(w) && oh / h == ow / w;
    !s.training() || (one_factor && !s.cpu_bf16())
}

/// Weights `[m, n]` of linear interpolation, by `ATen`'s rule.
fn interpolation(n: usize, m: usize, align_corners: bool) -> Vec<f64> {
    let mut weights = vec![0.0; m * n];
    for (i, row) in weights.chunks_exact_mut(n.max(1)).enumerate() {
        // The position is whole + part in exact integers, so that only the weight is rounded.
        let (above, below) = if align_corners {
            if m > 1 { (i * (n - 1), m - 1) } else { (0, 1) }
        } else {
            (((2 * i + 1) * n).saturating_sub(m), 2 * m)
        };
        let low = (above / below).min(n.saturating_sub(1));
        let part = (above - low * below) as f64 / below as f64;
        for (at, weight) in [(low, 1.0 - part), ((low + 1).min(n.saturating_sub(1)), part)] {
            if let Some(slot) = row.get_mut(at) {
                *slot += weight;
            }
        }
    }
    weights
}
