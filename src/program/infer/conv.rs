//! Convolution, pooling and upsampling: everything with windows.

use super::{Reason, exactly, is_rank, is_shape, one, same_float, with_optional};
use crate::program::{Op, Value};

pub(super) fn infer(op: &Op, x: &[&Value]) -> Reason<Vec<Value>> {
    match op {
        Op::Conv1d { stride, padding, dilation, groups } => {
            convolution(x, &[*stride], &[*padding], &[*dilation], *groups)
        }
        Op::Conv2d { stride, padding, dilation, groups } => {
            convolution(x, stride, padding, dilation, *groups)
        }
        Op::ConvTranspose1d { stride, padding, output_padding, groups, dilation } => {
            transposed(x, &[*stride], &[*padding], &[*output_padding], &[*dilation], *groups)
        }
        Op::ConvTranspose2d { stride, padding, output_padding, groups, dilation } => {
            transposed(x, stride, padding, output_padding, dilation, *groups)
        }
        Op::MaxPool2d { kernel_size, stride, padding, dilation, ceil_mode } => {
            pool(x, *kernel_size, *stride, *padding, *dilation, *ceil_mode)
        }
        Op::AvgPool2d { kernel_size, stride, padding, ceil_mode, .. } => {
            pool(x, *kernel_size, *stride, *padding, [1, 1], *ceil_mode)
        }
        Op::AdaptiveAvgPool2d { output_size }
        | Op::UpsampleNearest2d { output_size }
        | Op::UpsampleBilinear2d { output_size, .. } => {
            let [input] = exactly(x)?;
            let dtype = same_float(x)?;
            is_rank(input, 4, "the input")?;
            if output_size.contains(&0) || input.shape[2..].contains(&0) {
                return Err(format!("cannot resize {:?} to {output_size:?}", input.shape));
            }
            one(vec![input.shape[0], input.shape[1], output_size[0], output_size[1]], dtype)
        }
        _ => Err("not a windowed operator".to_owned()),
    }
}

fn convolution(
    x: &[&Value],
    stride: &[usize],
    padding: &[usize],
    dilation: &[usize],
    groups: usize,
) -> Reason<Vec<Value>> {
    let ([input, weight], bias) = with_optional(x)?;
    let dtype = same_float(x)?;
    let spatial = stride.len();
    is_rank(input, spatial + 2, "the input")?;
    is_rank(weight, spatial + 2, "the weight")?;
    let (channels, out) = (input.shape[1], weight.shape[0]);
    if groups == 0 || channels != weight.shape[1] * groups || out % groups != 0 {
        return Err(format!(
            "input {:?} and weight {:?} do not fit with groups = {groups}",
            input.shape, weight.shape
        ));
    }
    if let Some(bias) = bias {
        is_shape(bias, &[out], "the bias")?;
    }
    let mut shape = vec![input.shape[0], out];
    for i in 0..spatial {
        shape.push(window(
            input.shape[i + 2],
            weight.shape[i + 2],
            stride[i],
            padding[i],
            dilation[i],
            false,
        )?);
    }
    one(shape, dtype)
}

fn transposed(
    x: &[&Value],
    stride: &[usize],
    padding: &[usize],
    output_padding: &[usize],
    dilation: &[usize],
    groups: usize,
) -> Reason<Vec<Value>> {
    let ([input, weight], bias) = with_optional(x)?;
    let dtype = same_float(x)?;
    let spatial = stride.len();
    is_rank(input, spatial + 2, "the input")?;
    is_rank(weight, spatial + 2, "the weight")?;
    let channels = input.shape[1];
    if groups == 0 || channels != weight.shape[0] || channels % groups != 0 {
        return Err(format!(
            "input {:?} and weight {:?} do not fit with groups = {groups}",
            input.shape, weight.shape
        ));
    }
    let out = weight.shape[1] * groups;
    if let Some(bias) = bias {
        is_shape(bias, &[out], "the bias")?;
    }
    let mut shape = vec![input.shape[0], out];
    for i in 0..spatial {
        let (size, kernel) = (input.shape[i + 2], weight.shape[i + 2]);
        if size == 0 || kernel == 0 || stride[i] == 0 || dilation[i] == 0 {
            return Err("sizes, strides and dilations must be positive".to_owned());
        }
        if output_padding[i] >= stride[i].max(dilation[i]) {
            return Err("output padding must be smaller than stride or dilation".to_owned());
        }
        let full = (size - 1) * stride[i] + dilation[i] * (kernel - 1) + output_padding[i] + 1;
        match full.checked_sub(2 * padding[i]).filter(|size| *size > 0) {
            Some(size) => shape.push(size),
            None => return Err(format!("padding {} leaves nothing of {full}", padding[i])),
        }
    }
    one(shape, dtype)
}

fn pool(
    x: &[&Value],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil_mode: bool,
) -> Reason<Vec<Value>> {
    let [input] = exactly(x)?;
    let dtype = same_float(x)?;
    is_rank(input, 4, "the input")?;
    let mut shape = input.shape[..2].to_vec();
    for i in 0..2 {
        if padding[i] * 2 > kernel[i] {
            return Err(format!("padding {} is more than half the window {}", padding[i], kernel[i]));
        }
        shape.push(window(input.shape[i + 2], kernel[i], stride[i], padding[i], dilation[i], ceil_mode)?);
    }
    one(shape, dtype)
}

/// Number of window positions; with `ceil_mode` a last partial window counts if it starts
/// inside the input or the left padding.
fn window(
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    ceil_mode: bool,
) -> Reason<usize> {
    if kernel == 0 || stride == 0 || dilation == 0 {
        return Err("window, stride and dilation must be positive".to_owned());
    }
    let padded = size + 2 * padding;
    let reach = dilation * (kernel - 1) + 1;
    let Some(room) = padded.checked_sub(reach) else {
        return Err(format!("a window of {reach} does not fit into {size} padded by {padding}"));
    };
    let mut count = if ceil_mode { room.div_ceil(stride) } else { room / stride } + 1;
    if ceil_mode && (count - 1) * stride >= size + padding {
        count -= 1;
    }
    Ok(count)
}
