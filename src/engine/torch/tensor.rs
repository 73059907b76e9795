//! [`TorchTensor`], and the way of tensors between host and device.

use std::rc::Rc;

use tch::{Device, Kind, TchError, Tensor};

use super::native::{self, RawDevice, RawKind};
use super::ops::{OpError, first_lines};
use crate::engine::Leaf;
use crate::numerics::DType;
use crate::tensor::{Bytes, HostTensor};

/// A libtorch tensor; cloning shares it.
#[derive(Clone, Debug)]
pub struct TorchTensor(pub(super) Rc<Tensor>);

impl From<Tensor> for TorchTensor {
    fn from(tensor: Tensor) -> Self {
        Self(Rc::new(tensor))
    }
}

/// libtorch's name of a dtype.
pub(super) const fn kind_of(dtype: DType) -> Kind {
    match dtype {
        DType::F64 => Kind::Double,
        DType::F32 => Kind::Float,
        DType::F16 => Kind::Half,
        DType::BF16 => Kind::BFloat16,
        DType::I64 => Kind::Int64,
        DType::U8 => Kind::Uint8,
    }
}

/// Our name of a dtype of libtorch, if it is one that travels; booleans are `U8`.
pub(super) const fn dtype_of(kind: Kind) -> Option<DType> {
    Some(match kind {
        Kind::Double => DType::F64,
        Kind::Float => DType::F32,
        Kind::Half => DType::F16,
        Kind::BFloat16 => DType::BF16,
        Kind::Int64 => DType::I64,
        Kind::Uint8 | Kind::Bool => DType::U8,
        _ => return None,
    })
}

/// Name of a dtype in events.
pub(super) fn kind_name(kind: RawKind) -> String {
    let name = match kind {
        RawKind::U8 => "u8",
        RawKind::I8 => "i8",
        RawKind::I16 => "i16",
        RawKind::I32 => "i32",
        RawKind::I64 => "i64",
        RawKind::F16 => "f16",
        RawKind::F32 => "f32",
        RawKind::F64 => "f64",
        RawKind::Bool => "bool",
        RawKind::Bf16 => "bf16",
        RawKind::Other(number) => return format!("scalar-type-{number}"),
    };
    name.to_owned()
}

/// Label of a device. Where the software device stands in the place of `mps`, the label
/// says so, whoever asks.
pub(super) fn device_label(device: RawDevice) -> String {
    match device {
        RawDevice::Cpu => "cpu".to_owned(),
        RawDevice::Cuda(index) => format!("cuda:{}", index.max(0)),
        RawDevice::Mps if native::software_mps::is_registered() => "mps-emulated:0".to_owned(),
        RawDevice::Mps => "mps:0".to_owned(),
        RawDevice::Meta => "meta".to_owned(),
        RawDevice::Other { kind, index } => format!("device-type-{kind}:{}", index.max(0)),
    }
}

pub(super) fn upload(host: &HostTensor, device: Device, leaf: Leaf) -> Result<TorchTensor, OpError> {
    let shape: Vec<i64> = host.shape().iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect();
    let kind = kind_of(host.dtype());
    let mut tensor = Tensor::f_from_data_size(host.bytes(), &shape, kind)?;
    if device != Device::Cpu {
        tensor = tensor.f_to_device_(device, kind, false, false)?;
    }
    if leaf == Leaf::Differentiable {
        tensor = tensor.f_set_requires_grad(true)?;
    }
    Ok(tensor.into())
}

pub(super) fn download(tensor: &Tensor) -> Result<HostTensor, String> {
    let words = |e: TchError| first_lines(&e);
    let kind = tensor.f_kind().map_err(words)?;
    let dtype = dtype_of(kind).ok_or_else(|| format!("{kind:?} is not a dtype that is recorded"))?;
    let shape: Vec<usize> = tensor.size().into_iter().map(|n| usize::try_from(n).unwrap_or(0)).collect();
    let elements: usize = shape.iter().product();
    let mut bytes = vec![0; elements * dtype.size()];
    tensor.f_copy_data_u8(&mut bytes, elements).map_err(words)?;
    HostTensor::new(dtype, shape, Bytes::Owned(bytes.into())).map_err(|e| e.to_string())
}
