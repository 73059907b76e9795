//! Which libtorch is loaded, and its CUDA half.
#![expect(unsafe_code, reason = "calls into C++")]

use std::ffi::CStr;
use std::path::PathBuf;
use std::ptr::null_mut;

use super::error::{NativeError, check, take_string};
use super::ffi;

/// Version of the libtorch that is loaded, such as `2.11.0` or `2.11.0+cu130`'s
/// `2.11.0`. Differs from [`headers_version`] where another library is found at
/// run time than was built against: refuse to work then, layouts differ.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn libtorch_version() -> Result<String, NativeError> {
    let mut version = null_mut();
    // SAFETY: writes one string or leaves null.
    check("ask for libtorch's version", unsafe { ffi::parity_libtorch_version(&raw mut version) })?;
    Ok(take_string(version).unwrap_or_default())
}

/// Version of the headers this binary was compiled with.
#[must_use]
pub fn headers_version() -> &'static str {
    // SAFETY: a string literal of the library.
    unsafe { CStr::from_ptr(ffi::parity_libtorch_headers_version()) }.to_str().unwrap_or("")
}

/// File that `libtorch_cpu` was loaded from, links resolved.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn libtorch_path() -> Result<PathBuf, NativeError> {
    let mut path = null_mut();
    // SAFETY: writes one string or leaves null.
    check("find the loaded libtorch", unsafe { ffi::parity_libtorch_path(&raw mut path) })?;
    Ok(PathBuf::from(take_string(path).unwrap_or_default()))
}

/// What became of libtorch's CUDA half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CudaPart {
    /// Loaded now, from this file.
    Loaded(PathBuf),
    /// Was in the process already.
    Present,
    /// There is no such file: this libtorch knows the CPU only.
    Absent(PathBuf),
    /// The file is there; the dynamic loader's reason why it cannot be loaded.
    Failed(String),
}

/// Loads libtorch's CUDA half from beside the loaded `libtorch_cpu`. Only for a
/// CUDA target, and before anything asks libtorch for devices.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn load_cuda_part() -> Result<CudaPart, NativeError> {
    let (mut outcome, mut detail) = (0, null_mut());
    // SAFETY: writes both, or returns an error.
    check("load libtorch's CUDA part", unsafe { ffi::parity_load_cuda(&raw mut outcome, &raw mut detail) })?;
    let detail = take_string(detail).unwrap_or_default();
    Ok(match outcome {
        0 => CudaPart::Loaded(detail.into()),
        1 => CudaPart::Present,
        2 => CudaPart::Absent(detail.into()),
        _ => CudaPart::Failed(detail),
    })
}
