//! The emulated MPS device: `mps:0` in host memory, for tests.
//!
//! It exists only in a process that called [`register`]. Nothing measured on it
//! is a result about MPS: whoever records it must say *emulated*.
#![expect(unsafe_code, reason = "calls into C++")]

use std::ffi::CString;

use super::error::{NativeError, check};
use super::ffi;

/// What can be wrong with an operator, or with the device as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Floating results times `1 + epsilon`.
    Scale { epsilon: f64 },
    /// Inputs that are views are read from the start of their storage.
    IgnoreStorageOffset,
    /// Inputs with transposed strides are read as if contiguous.
    TransposedAsContiguous,
    /// The last, partial block of a result stays zero, or (`stale`) holds what
    /// the block before it holds.
    TailNotComputed { block_elements: u32, stale: bool },
    /// Writes to a non-contiguous destination never arrive.
    InPlaceLost,
    /// In backward, `aten::sum` returns the first slice in place of the sum.
    BroadcastNotReduced,
    /// `sum`, `mean`, `mm`, `bmm`, `addmm`, `baddbmm`, `linear` accumulate in
    /// f16 (bf16 for bf16 inputs).
    HalfAccumulation,
    /// The middle element of a result is NaN.
    OneNan,
    /// Results are all zeros.
    Zeroed,
    /// Every `calls`-th call runs as a fallback.
    FallbackEvery { calls: u32 },
    /// Runs as a fallback in backward only.
    FallbackInBackward,
    /// The first call's results times `1 + epsilon`.
    WrongFirstCall { epsilon: f64 },
    /// Call number n returns its results times `1 + n * epsilon`.
    Drift { epsilon: f64 },
    /// Memory is refused; for [`DEVICE`] only.
    FailAllocation,
}

/// In place of an operator's name: every operator of the device.
pub const DEVICE: &str = "device";

impl Fault {
    /// The name the native part knows it by, and its parameter.
    fn parts(self) -> (&'static str, f64) {
        match self {
            Self::Scale { epsilon } => ("scale", epsilon),
            Self::IgnoreStorageOffset => ("ignore-storage-offset", 0.0),
            Self::TransposedAsContiguous => ("transposed-as-contiguous", 0.0),
            Self::TailNotComputed { block_elements, stale: false } => ("tail-zero", block_elements.into()),
            Self::TailNotComputed { block_elements, stale: true } => ("tail-stale", block_elements.into()),
            Self::InPlaceLost => ("in-place-lost", 0.0),
            Self::BroadcastNotReduced => ("broadcast-not-reduced", 0.0),
            Self::HalfAccumulation => ("half-accumulation", 0.0),
            Self::OneNan => ("one-nan", 0.0),
            Self::Zeroed => ("zeroed", 0.0),
            Self::FallbackEvery { calls } => ("fallback-every", calls.into()),
            Self::FallbackInBackward => ("fallback-in-backward", 0.0),
            Self::WrongFirstCall { epsilon } => ("wrong-first-call", epsilon),
            Self::Drift { epsilon } => ("drift", epsilon),
            Self::FailAllocation => ("fail-allocation", 0.0),
        }
    }
}

fn c_string(doing: &'static str, text: &str) -> Result<CString, NativeError> {
    CString::new(text).map_err(|_| NativeError::ZeroByte { doing, text: text.to_owned() })
}

/// Makes `mps:0` exist in this process, for good. Call it before anything else
/// asks libtorch for devices and before the first backward. Does nothing the
/// second time; refuses where libtorch has a real MPS device.
///
/// # Errors
///
/// What the native part refused: an unknown name, a late or impossible registration.
pub fn register() -> Result<(), NativeError> {
    check("register the software MPS device", ffi::parity_software_mps_register())
}

/// Whether `mps` in this process is the emulated one.
#[must_use]
pub fn is_registered() -> bool {
    ffi::parity_software_mps_is_registered()
}

/// Operators that fall back to the CPU in the open, such as `aten::_softmax`
/// (all overloads) or `aten::_softmax.out`. Replaces the set. A name that does
/// not reach a device (`aten::softmax` is broken up before) is refused.
///
/// # Errors
///
/// What the native part refused: an unknown name, a late or impossible registration.
pub fn set_unsupported(names: &[&str]) -> Result<(), NativeError> {
    const DOING: &str = "declare operators unsupported";
    let owned = names.iter().map(|name| c_string(DOING, name)).collect::<Result<Vec<_>, _>>()?;
    let pointers: Vec<_> = owned.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: `owned` outlives the call.
    check(DOING, unsafe { ffi::parity_software_mps_set_unsupported(pointers.as_ptr(), pointers.len()) })
}

/// Adds one fault to one operator, or to [`DEVICE`]; faults of one operator add up.
///
/// # Errors
///
/// What the native part refused: an unknown name, a late or impossible registration.
pub fn add_fault(operator: &str, fault: Fault) -> Result<(), NativeError> {
    const DOING: &str = "plant a fault";
    let (kind, parameter) = fault.parts();
    let (operator, kind) = (c_string(DOING, operator)?, c_string(DOING, kind)?);
    // SAFETY: both strings outlive the call.
    check(DOING, unsafe { ffi::parity_software_mps_add_fault(operator.as_ptr(), kind.as_ptr(), parameter) })
}

/// Everything supported, no faults, counters at zero.
///
/// # Errors
///
/// What the native part refused: an unknown name, a late or impossible registration.
pub fn clear() -> Result<(), NativeError> {
    check("clear the faults", ffi::parity_software_mps_clear())
}

/// How often a fault has struck since the last [`clear`]; a planted fault that
/// never struck proves nothing.
#[must_use]
pub fn fault_count() -> u64 {
    ffi::parity_software_mps_fault_count()
}
