//! Pooling.

use candle_core::{Result, Tensor};

use super::situation::{Situation, arg, constants, not_mine};
use super::window::{Axis, unfold};
use crate::engine::Support;
use crate::program::Op;

/// How a pooling operator is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Native,
    /// Zeros around, then the native kernel.
    Padded,
    Windows,
}

pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    match op {
        Op::AdaptiveAvgPool2d { output_size: [1, 1] } => Support::Decomposed("mean"),
        Op::AdaptiveAvgPool2d { output_size } if divides(*output_size, s) => {
            Support::Decomposed("avg_pool2d")
        }
        Op::AdaptiveAvgPool2d { .. } => Support::Decomposed("narrow + mean + cat"),
        Op::MaxPool2d { .. } if route(op, s) == Route::Windows => Support::Decomposed("unfold + max"),
        _ => match route(op, s) {
            Route::Native => Support::Native,
            Route::Padded => Support::Decomposed("pad_with_zeros + avg_pool2d"),
            Route::Windows => Support::Decomposed("unfold + weighted sum"),
        },
    }
}

pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let input = arg(x, 0)?;
    let y = match op {
        Op::AdaptiveAvgPool2d { output_size: [1, 1] } => input.mean_keepdim((2, 3)),
        Op::AdaptiveAvgPool2d { output_size: [oh, ow] } if divides([*oh, *ow], s) => {
            input.avg_pool2d((s.dim(0, 2) / oh, s.dim(0, 3) / ow))
        }
        Op::AdaptiveAvgPool2d { output_size: [oh, ow] } => adaptive(&adaptive(input, 2, *oh)?, 3, *ow),
        Op::MaxPool2d { kernel_size: [kh, kw], stride: [sh, sw], padding, dilation, .. } => {
            if route(op, s) == Route::Native {
                input.max_pool2d_with_stride((*kh, *kw), (*sh, *sw))
            } else {
                let out = s.output(op)?;
                let axes = axes(s, [*kh, *kw], [*sh, *sw], *padding, *dilation, &out);
                unfold(input, &axes, f64::NEG_INFINITY)?.max(2)?.reshape(out)
            }
        }
        Op::AvgPool2d { kernel_size: [kh, kw], stride: [sh, sw], padding, count_include_pad, .. } => {
            match route(op, s) {
                Route::Native => input.avg_pool2d_with_stride((*kh, *kw), (*sh, *sw)),
                Route::Padded => {
                    let [ph, pw] = *padding;
                    let padded = input.pad_with_zeros(2, ph, ph)?.pad_with_zeros(3, pw, pw)?;
                    padded.avg_pool2d_with_stride((*kh, *kw), (*sh, *sw))
                }
                Route::Windows => {
                    let out = s.output(op)?;
                    let axes = axes(s, [*kh, *kw], [*sh, *sw], *padding, [1, 1], &out);
                    let sums = unfold(input, &axes, 0.0)?.sum(2)?;
                    let weights = constants(&weights(&axes, *count_include_pad), &[axes_len(&axes)], input)?;
                    sums.broadcast_mul(&weights)?.reshape(out)
                }
            }
        }
        _ => not_mine(op),
    };
    Ok(vec![y?])
}

fn divides(output: [usize; 2], s: &Situation<'_>) -> bool {
    let [oh, ow] = output;
    oh > 0 && ow > 0 && s.dim(0, 2).is_multiple_of(oh) && s.dim(0, 3).is_multiple_of(ow)
}

/// candle has windows without padding or dilation, and their gradient only where they do
/// not overlap.
fn route(op: &Op, s: &Situation<'_>) -> Route {
    let (kernel, stride, padding, dilation, ceil, excludes_padding) = match op {
        Op::MaxPool2d { kernel_size, stride, padding, dilation, ceil_mode } => {
            (kernel_size, stride, padding, *dilation, *ceil_mode, true)
        }
        Op::AvgPool2d { kernel_size, stride, padding, ceil_mode, count_include_pad } => {
            (kernel_size, stride, padding, [1, 1], *ceil_mode, !count_include_pad)
        }
        _ => return Route::Native,
    };
    let whole = kernel.iter().zip(stride).zip(padding).enumerate().all(|(i, ((kernel, stride), padding))| {
        let room = (s.dim(0, i + 2) + 2 * padding).saturating_sub(*kernel);
        *stride > 0 && room.is_multiple_of(*stride)
    });
    let padded = *padding != [0, 0];
    let differentiable = !s.training() || kernel == stride;
    if dilation != [1, 1] || (ceil && !whole) || !differentiable || (padded && excludes_padding) {
        Route::Windows
    } else if padded {
        Route::Padded
    } else {
        Route::Native
    }
}

fn axes(
    s: &Situation<'_>,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    out: &[usize],
) -> [Axis; 2] {
    let axis = |i: usize, kernel, stride, padding, dilation| Axis {
        size: s.dim(0, i),
        kernel,
        stride,
        padding,
        dilation,
        count: out.get(i).copied().unwrap_or(0),
    };
    let ([kh, kw], [sh, sw], [ph, pw], [dh, dw]) = (kernel, stride, padding, dilation);
    [axis(2, kh, sh, ph, dh), axis(3, kw, sw, pw, dw)]
}

fn axes_len(axes: &[Axis; 2]) -> usize {
    axes.iter().map(|axis| axis.count).product()
}

/// One over the number of elements that count, for each window. What lies beyond the right
/// padding (`ceil_mode`) never counts.
fn weights(axes: &[Axis; 2], include_padding: bool) -> Vec<f64> {
    let counted = |axis: &Axis, w: usize| {
        let (from, limit) = if include_padding {
            (0, axis.size + 2 * axis.padding)
        } else {
            (axis.padding, axis.size + axis.padding)
        };
        axis.inside(w, from, limit)
    };
    let [rows, columns] = axes;
    (0..rows.count)
        .flat_map(|i| (0..columns.count).map(move |j| (i, j)))
        .map(|(i, j)| 1.0 / (counted(rows, i) * counted(columns, j)) as f64)
        .collect()
}

/// Means over `floor(i·n/m) .. ceil((i+1)·n/m)` along `dim`.
fn adaptive(x: &Tensor, dim: usize, m: usize) -> Result<Tensor> {
    let n = x.dim(dim)?;
    let parts = (0..m)
        .map(|i| {
            let (start, end) = (i * n / m, ((i + 1) * n).div_ceil(m));
            x.narrow(dim, start, end - start)?.mean_keepdim(dim)
        })
        .collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts, dim)
}
