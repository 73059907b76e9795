//! Host tensors to candle and back, in their own dtype.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Device, Error, Layout, Result, Storage, Tensor, Var};
use half::{bf16, f16};

use crate::engine::Leaf;
use crate::numerics::DType;
use crate::tensor::{Bytes, HostTensor};

/// candle's name of a dtype.
pub(super) const fn to_candle(dtype: DType) -> candle_core::DType {
    match dtype {
        DType::F64 => candle_core::DType::F64,
        DType::F32 => candle_core::DType::F32,
        DType::F16 => candle_core::DType::F16,
        DType::BF16 => candle_core::DType::BF16,
        DType::I64 => candle_core::DType::I64,
        DType::U8 => candle_core::DType::U8,
    }
}

/// Copies to the device; a differentiable leaf becomes a variable.
pub(super) fn upload(host: &HostTensor, leaf: Leaf, device: &Device) -> Result<Tensor> {
    match host.dtype() {
        DType::F64 => put(decode(host.bytes(), f64::from_le_bytes), host.shape(), leaf, device),
        DType::F32 => put(decode(host.bytes(), f32::from_le_bytes), host.shape(), leaf, device),
        DType::F16 => put(decode(host.bytes(), f16::from_le_bytes), host.shape(), leaf, device),
        DType::BF16 => put(decode(host.bytes(), bf16::from_le_bytes), host.shape(), leaf, device),
        DType::I64 => put(decode(host.bytes(), i64::from_le_bytes), host.shape(), leaf, device),
        DType::U8 => put(host.bytes().to_vec(), host.shape(), leaf, device),
    }
}

fn put<T: candle_core::WithDType>(
    data: Vec<T>,
    shape: &[usize],
    leaf: Leaf,
    device: &Device,
) -> Result<Tensor> {
    match leaf {
        Leaf::Constant => Tensor::from_vec(data, shape, device),
        Leaf::Differentiable => Ok(Var::from_vec(data, shape, device)?.into_inner()),
    }
}

fn decode<T, const N: usize>(bytes: &[u8], one: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|word| one(*word)).collect()
}

/// Copies to the host, row-major.
pub(super) fn download(tensor: &Tensor) -> Result<HostTensor> {
    let tensor = tensor.detach().contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    let (dtype, bytes) = match &*storage {
        Storage::Cpu(cpu) => encode(cpu, layout)?,
        Storage::Cuda(cuda) => encode(&cuda.to_cpu_storage()?, layout)?,
        Storage::Metal(metal) => encode(&metal.to_cpu_storage()?, layout)?,
    };
    HostTensor::new(dtype, tensor.dims().to_vec(), Bytes::Owned(bytes.into())).map_err(Error::wrap)
}

fn encode(storage: &CpuStorage, layout: &Layout) -> Result<(DType, Vec<u8>)> {
    Ok(match storage {
        CpuStorage::F64(v) => (DType::F64, words(v, layout, f64::to_le_bytes)?),
        CpuStorage::F32(v) => (DType::F32, words(v, layout, f32::to_le_bytes)?),
        CpuStorage::F16(v) => (DType::F16, words(v, layout, f16::to_le_bytes)?),
        CpuStorage::BF16(v) => (DType::BF16, words(v, layout, bf16::to_le_bytes)?),
        CpuStorage::I64(v) => (DType::I64, words(v, layout, i64::to_le_bytes)?),
        CpuStorage::U8(v) => (DType::U8, words(v, layout, u8::to_le_bytes)?),
        other => return Err(Error::UnsupportedDTypeForOp(other.dtype(), "download")),
    })
}

fn words<T: Copy, const N: usize>(data: &[T], layout: &Layout, bytes: fn(T) -> [u8; N]) -> Result<Vec<u8>> {
    let range = layout
        .contiguous_offsets()
        .and_then(|(start, end)| data.get(start..end))
        .ok_or_else(|| Error::Msg("the storage is shorter than its layout says".to_owned()))?;
    let mut out = Vec::with_capacity(range.len() * N);
    for value in range {
        out.extend_from_slice(&bytes(*value));
    }
    Ok(out)
}
