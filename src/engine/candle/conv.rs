//! Convolutions.

use candle_core::{Result, Tensor};
use candle_nn::{Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvTranspose1d, ConvTranspose1dConfig, Module};

use super::situation::{Situation, arg, not_mine};
use super::window::{Axis, fold, unfold};
use crate::engine::Support;
use crate::program::Op;

/// Attributes of any convolution, one entry a dimension.
struct Geometry {
    stride: Vec<usize>,
    padding: Vec<usize>,
    dilation: Vec<usize>,
    output_padding: Vec<usize>,
    groups: usize,
    transposed: bool,
}

/// How a convolution is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Native,
    /// `candle` has no groups here: one call a group.
    PerGroup,
    Windows,
}

pub(super) fn supports(op: &Op, s: &Situation<'_>) -> Support {
    let Some(geometry) = geometry(op) else { return Support::Native };
    match (route(&geometry, s), geometry.transposed) {
        (Route::Native, _) => Support::Native,
        (Route::PerGroup, _) => Support::Decomposed("conv_transpose2d for each group"),
        (Route::Windows, false) => Support::Decomposed("unfold + matmul"),
        (Route::Windows, true) => Support::Decomposed("matmul + index_add"),
    }
}

pub(super) fn apply(op: &Op, s: &Situation<'_>, x: &[&Tensor]) -> Result<Vec<Tensor>> {
    let Some(geometry) = geometry(op) else { return not_mine(op) };
    let (input, weight, bias) = (arg(x, 0)?, arg(x, 1)?, x.get(2).copied());
    let y = match route(&geometry, s) {
        Route::Native => return Ok(vec![native(op, input, weight, bias.cloned())?]),
        Route::PerGroup => per_group(&geometry, input, weight)?,
        Route::Windows if geometry.transposed => scattered(&geometry, input, weight, &s.output(op)?)?,
        Route::Windows => windowed(&geometry, input, weight, &s.output(op)?)?,
    };
    let Some(bias) = bias else { return Ok(vec![y]) };
    let mut shape = vec![1; y.rank()];
    if let Some(channels) = shape.get_mut(1) {
        *channels = bias.elem_count();
    }
    Ok(vec![y.broadcast_add(&bias.reshape(shape)?)?])
}

fn geometry(op: &Op) -> Option<Geometry> {
    let geometry = match op {
        Op::Conv1d { stride, padding, dilation, groups } => Geometry {
            stride: vec![*stride],
            padding: vec![*padding],
            dilation: vec![*dilation],
            output_padding: vec![0],
            groups: *groups,
            transposed: false,
        },
        Op::Conv2d { stride, padding, dilation, groups } => Geometry {
            stride: stride.to_vec(),
            padding: padding.to_vec(),
            dilation: dilation.to_vec(),
            output_padding: vec![0, 0],
            groups: *groups,
            transposed: false,
        },
        Op::ConvTranspose1d { stride, padding, output_padding, groups, dilation } => Geometry {
            stride: vec![*stride],
            padding: vec![*padding],
            dilation: vec![*dilation],
            output_padding: vec![*output_padding],
            groups: *groups,
            transposed: true,
        },
        Op::ConvTranspose2d { stride, padding, output_padding, groups, dilation } => Geometry {
            stride: stride.to_vec(),
            padding: padding.to_vec(),
            dilation: dilation.to_vec(),
            output_padding: output_padding.to_vec(),
            groups: *groups,
            transposed: true,
        },
        _ => return None,
    };
    Some(geometry)
}

fn uniform(list: &[usize]) -> bool {
    list.windows(2).all(|pair| pair.first() == pair.last())
}

fn route(geometry: &Geometry, s: &Situation<'_>) -> Route {
    // candle takes one number for both dimensions.
    let even = [&geometry.stride, &geometry.padding, &geometry.dilation, &geometry.output_padding]
        .into_iter()
        .all(|list| uniform(list));
    let one_dimensional = geometry.stride.len() == 1;
    if !even || s.cpu_bf16() {
        return Route::Windows;
    }
    if geometry.transposed {
        // conv_transpose1d has no backward.
        if one_dimensional && s.training() {
            return Route::Windows;
        }
        if !one_dimensional && geometry.groups > 1 {
            return Route::PerGroup;
        }
    }
    Route::Native
}

fn native(op: &Op, x: &Tensor, weight: &Tensor, bias: Option<Tensor>) -> Result<Tensor> {
    let (x, weight) = (x.clone(), weight.clone());
    match op {
        Op::Conv1d { stride, padding, dilation, groups } => {
            let config = Conv1dConfig {
                padding: *padding,
                stride: *stride,
                dilation: *dilation,
                groups: *groups,
                cudnn_fwd_algo: None,
            };
            Conv1d::new(weight, bias, config).forward(&x)
        }
        Op::Conv2d { stride: [stride, _], padding: [padding, _], dilation: [dilation, _], groups } => {
            let config = Conv2dConfig {
                padding: *padding,
                stride: *stride,
                dilation: *dilation,
                groups: *groups,
                cudnn_fwd_algo: None,
            };
            Conv2d::new(weight, bias, config).forward(&x)
        }
        Op::ConvTranspose1d { stride, padding, output_padding, groups, dilation } => {
            let config = ConvTranspose1dConfig {
                padding: *padding,
                output_padding: *output_padding,
                stride: *stride,
                dilation: *dilation,
                groups: *groups,
            };
            ConvTranspose1d::new(weight, bias, config).forward(&x)
        }
        Op::ConvTranspose2d {
            stride: [stride, _],
            padding: [padding, _],
            output_padding: [output_padding, _],
            dilation: [dilation, _],
            ..
        } => {
            let config = candle_nn::ConvTranspose2dConfig {
                padding: *padding,
                output_padding: *output_padding,
                stride: *stride,
                dilation: *dilation,
            };
            candle_nn::ConvTranspose2d::new(weight, bias, config).forward(&x)
        }
        _ => not_mine(op),
    }
}

fn per_group(geometry: &Geometry, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let first = |list: &[usize]| list.first().copied().unwrap_or(0);
    let parts = x.chunk(geometry.groups, 1)?;
    let weights = weight.chunk(geometry.groups, 0)?;
    let groups = parts
        .iter()
        .zip(&weights)
        .map(|(x, weight)| {
            x.conv_transpose2d(
                weight,
                first(&geometry.padding),
                first(&geometry.output_padding),
                first(&geometry.stride),
                first(&geometry.dilation),
            )
        })
        .collect::<Result<Vec<_>>>()?;
    Tensor::cat(&groups, 1)
}

/// Windows of `sizes` (the side that is padded) at `counts` places.
fn axes(geometry: &Geometry, sizes: &[usize], kernel: &[usize], counts: &[usize]) -> Vec<Axis> {
    let attributes = geometry.stride.iter().zip(&geometry.padding).zip(&geometry.dilation);
    attributes
        .zip(sizes.iter().zip(kernel).zip(counts))
        .map(|(((stride, padding), dilation), ((size, kernel), count))| Axis {
            size: *size,
            kernel: *kernel,
            stride: *stride,
            padding: *padding,
            dilation: *dilation,
            count: *count,
        })
        .collect()
}

fn spatial(shape: &[usize]) -> &[usize] {
    shape.get(2..).unwrap_or_default()
}

fn windowed(geometry: &Geometry, x: &Tensor, weight: &Tensor, out: &[usize]) -> Result<Tensor> {
    let axes = axes(geometry, spatial(x.dims()), spatial(weight.dims()), spatial(out));
    let columns = unfold(x, &axes, 0.0)?;
    let (n, _, elements, windows) = columns.dims4()?;
    let groups = columns
        .chunk(geometry.groups, 1)?
        .iter()
        .zip(&weight.chunk(geometry.groups, 0)?)
        .map(|(columns, weight)| {
            let (o, c) = (weight.dim(0)?, weight.dim(1)?);
            let weight = weight.reshape((o, c * elements))?;
            weight.broadcast_matmul(&columns.reshape((n, c * elements, windows))?)
        })
        .collect::<Result<Vec<_>>>()?;
    Tensor::cat(&groups, 1)?.reshape(out)
}

fn scattered(geometry: &Geometry, x: &Tensor, weight: &Tensor, out: &[usize]) -> Result<Tensor> {
    let axes = axes(geometry, spatial(out), spatial(weight.dims()), spatial(x.dims()));
    let (n, windows) = (x.dim(0)?, spatial(x.dims()).iter().product::<usize>());
    let elements: usize = spatial(weight.dims()).iter().product();
    let groups = x
        .chunk(geometry.groups, 1)?
        .iter()
        .zip(&weight.chunk(geometry.groups, 0)?)
        .map(|(x, weight)| {
            let (c, o) = (weight.dim(0)?, weight.dim(1)?);
            let weight = weight.reshape((c, o * elements))?.t()?;
            let columns = weight.broadcast_matmul(&x.reshape((n, c, windows))?)?;
            columns.reshape((n, o, elements, windows))
        })
        .collect::<Result<Vec<_>>>()?;
    fold(&Tensor::cat(&groups, 1)?, &axes)
}
