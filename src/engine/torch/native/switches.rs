//! libtorch's process-wide switches: part of a target's precision, so they are
//! set explicitly and recorded.
#![expect(unsafe_code, reason = "calls into C++")]

use serde::{Deserialize, Serialize};

use super::error::{NativeError, check};
use super::ffi::{self, RawSwitches};

/// libtorch's `float32_matmul_precision`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatmulPrecision {
    Highest,
    High,
    Medium,
}

/// Every switch that changes numbers or their reproducibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches")]
pub struct Switches {
    /// TF32 in matmuls: follows `float32_matmul_precision` (true unless it is
    /// highest) and must agree with it.
    pub tf32_cublas: bool,
    pub tf32_cudnn: bool,
    /// Reduced-precision reductions inside f16 matmuls of cuBLAS; `bf16_` likewise.
    pub fp16_reduction_cublas: bool,
    pub bf16_reduction_cublas: bool,
    pub fp16_accumulation_cublas: bool,
    /// f16 and bf16 reductions in unfused attention.
    pub half_reduction_math_sdp: bool,
    pub fp16_reduction_cpu: bool,
    pub deterministic_algorithms: bool,
    pub deterministic_warn_only: bool,
    pub cudnn_benchmark: bool,
    pub cudnn_deterministic: bool,
    pub float32_matmul_precision: MatmulPrecision,
}

impl From<RawSwitches> for Switches {
    fn from(raw: RawSwitches) -> Self {
        Self {
            tf32_cublas: raw.tf32_cublas != 0,
            tf32_cudnn: raw.tf32_cudnn != 0,
            fp16_reduction_cublas: raw.fp16_reduction_cublas != 0,
            bf16_reduction_cublas: raw.bf16_reduction_cublas != 0,
            fp16_accumulation_cublas: raw.fp16_accumulation_cublas != 0,
            half_reduction_math_sdp: raw.half_reduction_math_sdp != 0,
            fp16_reduction_cpu: raw.fp16_reduction_cpu != 0,
            deterministic_algorithms: raw.deterministic_algorithms != 0,
            deterministic_warn_only: raw.deterministic_warn_only != 0,
            cudnn_benchmark: raw.cudnn_benchmark != 0,
            cudnn_deterministic: raw.cudnn_deterministic != 0,
            float32_matmul_precision: match raw.float32_matmul_precision {
                0 => MatmulPrecision::Highest,
                1 => MatmulPrecision::High,
                _ => MatmulPrecision::Medium,
            },
        }
    }
}

impl From<Switches> for RawSwitches {
    fn from(switches: Switches) -> Self {
        Self {
            tf32_cublas: switches.tf32_cublas.into(),
            tf32_cudnn: switches.tf32_cudnn.into(),
            fp16_reduction_cublas: switches.fp16_reduction_cublas.into(),
            bf16_reduction_cublas: switches.bf16_reduction_cublas.into(),
            fp16_accumulation_cublas: switches.fp16_accumulation_cublas.into(),
            half_reduction_math_sdp: switches.half_reduction_math_sdp.into(),
            fp16_reduction_cpu: switches.fp16_reduction_cpu.into(),
            deterministic_algorithms: switches.deterministic_algorithms.into(),
            deterministic_warn_only: switches.deterministic_warn_only.into(),
            cudnn_benchmark: switches.cudnn_benchmark.into(),
            cudnn_deterministic: switches.cudnn_deterministic.into(),
            float32_matmul_precision: switches.float32_matmul_precision as u8,
        }
    }
}

/// What the process has now.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn read_switches() -> Result<Switches, NativeError> {
    let mut raw = RawSwitches::default();
    // SAFETY: fills the struct.
    check("read libtorch's switches", unsafe { ffi::parity_read_switches(&raw mut raw) })?;
    Ok(raw.into())
}

/// Sets all of them. Read them back for the record: libtorch may keep another
/// value than was asked for.
///
/// # Errors
/// What libtorch refused, in its words.
pub fn apply_switches(switches: Switches) -> Result<(), NativeError> {
    let raw = RawSwitches::from(switches);
    // SAFETY: reads the struct.
    check("set libtorch's switches", unsafe { ffi::parity_apply_switches(&raw const raw) })
}

/// Threads inside one operator, and between operators.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn threads() -> Result<(i32, i32), NativeError> {
    let (mut intra_op, mut inter_op) = (0, 0);
    // SAFETY: writes both numbers.
    check("ask for libtorch's threads", unsafe {
        ffi::parity_get_threads(&raw mut intra_op, &raw mut inter_op)
    })?;
    Ok((intra_op, inter_op))
}

/// Threads inside one operator.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn set_intra_op_threads(threads: i32) -> Result<(), NativeError> {
    check("set libtorch's threads", ffi::parity_set_intra_op_threads(threads))
}

/// Threads between operators; once a process, before the first parallel work.
///
/// # Errors
/// What libtorch refused, in its words.
pub fn set_inter_op_threads(threads: i32) -> Result<(), NativeError> {
    check("set libtorch's inter-op threads", ffi::parity_set_inter_op_threads(threads))
}
