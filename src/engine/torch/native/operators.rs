//! Operators whose scalar arguments tch leaves out, and where a tensor lives.
#![expect(unsafe_code, reason = "passes tensors to C++ and takes new ones over")]

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use tch::Tensor;

use super::error::{NativeError, check};
use super::trace::{RawDevice, device};

unsafe extern "C" {
    fn parity_addmm(
        bias: *mut c_void,
        a: *mut c_void,
        b: *mut c_void,
        beta: f64,
        alpha: f64,
        out: *mut *mut c_void,
    ) -> *mut c_char;
    fn parity_softplus(input: *mut c_void, beta: f64, threshold: f64, out: *mut *mut c_void) -> *mut c_char;
    fn parity_leaky_relu(input: *mut c_void, negative_slope: f64, out: *mut *mut c_void) -> *mut c_char;
    fn parity_device_of(tensor: *mut c_void, kind: *mut i8, index: *mut i8) -> *mut c_char;
}

fn pointer(tensor: &Tensor) -> *mut c_void {
    tensor.as_ptr().cast_mut().cast()
}

fn made(
    doing: &'static str,
    call: impl FnOnce(*mut *mut c_void) -> *mut c_char,
) -> Result<Tensor, NativeError> {
    let mut out = null_mut();
    check(doing, call(&raw mut out))?;
    // SAFETY: without an error the callee made a tensor for us.
    Ok(unsafe { Tensor::from_ptr(out.cast()) })
}

/// `at::addmm` with both factors.
///
/// # Errors
/// What libtorch refused, in its words.
pub fn addmm(bias: &Tensor, a: &Tensor, b: &Tensor, beta: f64, alpha: f64) -> Result<Tensor, NativeError> {
    made("apply addmm", |out| {
        // SAFETY: live tensors, read only; `out` is valid.
        unsafe { parity_addmm(pointer(bias), pointer(a), pointer(b), beta, alpha, out) }
    })
}

/// `at::softplus` with both parameters.
///
/// # Errors
/// What libtorch refused, in its words.
pub fn softplus(input: &Tensor, beta: f64, threshold: f64) -> Result<Tensor, NativeError> {
    made("apply softplus", |out| {
        // SAFETY: a live tensor, read only; `out` is valid.
        unsafe { parity_softplus(pointer(input), beta, threshold, out) }
    })
}

/// `at::leaky_relu` with its slope.
///
/// # Errors
/// What libtorch refused, in its words.
pub fn leaky_relu(input: &Tensor, negative_slope: f64) -> Result<Tensor, NativeError> {
    made("apply leaky_relu", |out| {
        // SAFETY: a live tensor, read only; `out` is valid.
        unsafe { parity_leaky_relu(pointer(input), negative_slope, out) }
    })
}

/// Where a tensor says it lives. tch would call every device that it does not know `mps`.
///
/// # Errors
/// What libtorch refused, in its words.
pub fn device_of(tensor: &Tensor) -> Result<RawDevice, NativeError> {
    let (mut kind, mut index) = (0, 0);
    // SAFETY: a live tensor, read only; both numbers are written.
    check("ask a tensor where it lives", unsafe {
        parity_device_of(pointer(tensor), &raw mut kind, &raw mut index)
    })?;
    Ok(device(kind, index))
}
