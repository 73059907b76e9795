//! Convolution, pooling and upsampling.

use tch::Tensor;

use super::{Results, exactly, int, ints, misrouted, one, with_optional};
use crate::program::Op;

pub(super) fn apply(op: &Op, x: &[&Tensor]) -> Results {
    one(match op {
        Op::Conv1d { stride, padding, dilation, groups } => {
            let ([input, weight], bias) = with_optional(x)?;
            input.f_conv1d(weight, bias, int(*stride), int(*padding), int(*dilation), int(*groups))?
        }
        Op::Conv2d { stride, padding, dilation, groups } => {
            let ([input, weight], bias) = with_optional(x)?;
            input.f_conv2d(weight, bias, ints(stride), ints(padding), ints(dilation), int(*groups))?
        }
        Op::ConvTranspose1d { stride, padding, output_padding, groups, dilation } => {
            let ([input, weight], bias) = with_optional(x)?;
            input.f_conv_transpose1d(
                weight,
                bias,
                int(*stride),
                int(*padding),
                int(*output_padding),
                int(*groups),
                int(*dilation),
            )?
        }
        Op::ConvTranspose2d { stride, padding, output_padding, groups, dilation } => {
            let ([input, weight], bias) = with_optional(x)?;
            input.f_conv_transpose2d(
                weight,
                bias,
                ints(stride),
                ints(padding),
                ints(output_padding),
                int(*groups),
                ints(dilation),
            )?
        }
        Op::MaxPool2d { kernel_size, stride, padding, dilation, ceil_mode } => {
            let [input] = exactly(x)?;
            input.f_max_pool2d(ints(kernel_size), ints(stride), ints(padding), ints(dilation), *ceil_mode)?
        }
        Op::AvgPool2d { kernel_size, stride, padding, ceil_mode, count_include_pad } => {
            let [input] = exactly(x)?;
            let (kernel, stride, padding) = (ints(kernel_size), ints(stride), ints(padding));
            input.f_avg_pool2d(kernel, stride, padding, *ceil_mode, *count_include_pad, None)?
        }
        Op::AdaptiveAvgPool2d { output_size } => {
            let [input] = exactly(x)?;
            input.f_adaptive_avg_pool2d(ints(output_size))?
        }
        Op::UpsampleNearest2d { output_size } => {
            let [input] = exactly(x)?;
            input.f_upsample_nearest2d(ints(output_size), None, None)?
        }
        Op::UpsampleBilinear2d { output_size, align_corners } => {
            let [input] = exactly(x)?;
            input.f_upsample_bilinear2d(ints(output_size), *align_corners, None, None)?
        }
        _ => return Err(misrouted(op)),
    })
}
