//! What a device says about itself.
#![expect(unsafe_code, reason = "calls into C++")]

use std::ptr::null_mut;

use serde::{Deserialize, Serialize};
use tch::Device;

use super::error::{NativeError, check, take_string};
use super::ffi::{self, RawAvailability, RawMemory};

/// Two of the three answers about a device; whether it computes is the canary's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Availability {
    /// The loaded libtorch has code for it.
    pub built: bool,
    /// It can be used on this machine now.
    pub available: bool,
    pub count: i32,
}

/// Bytes of a device's allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    pub allocated_bytes: u64,
    pub peak_allocated_bytes: u64,
    pub reserved_bytes: u64,
    pub peak_reserved_bytes: u64,
}

/// `c10::DeviceType` and index.
fn numbers(device: Device) -> (i32, i32) {
    match device {
        Device::Cuda(index) => (1, i32::try_from(index).unwrap_or(i32::MAX)),
        Device::Mps => (13, 0),
        Device::Vulkan => (10, 0),
        Device::Cpu => (0, 0),
    }
}

/// Built and available, for the kind of device; a CUDA index is not looked at.
/// libtorch keeps its first answer: load or register what is wanted before.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn availability(device: Device) -> Result<Availability, NativeError> {
    let mut raw = RawAvailability::default();
    // SAFETY: fills the struct.
    check("ask whether the device is there", unsafe {
        ffi::parity_availability(numbers(device).0, &raw mut raw)
    })?;
    Ok(Availability { built: raw.built != 0, available: raw.available != 0, count: raw.count })
}

/// The device's own name; `None` where libtorch knows none.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn device_name(device: Device) -> Result<Option<String>, NativeError> {
    let (kind, index) = numbers(device);
    let mut name = null_mut();
    // SAFETY: writes one string or leaves null.
    check("ask for the device's name", unsafe { ffi::parity_device_name(kind, index, &raw mut name) })?;
    Ok(take_string(name))
}

/// Waits until the device has done all it was given.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn synchronize(device: Device) -> Result<(), NativeError> {
    let (kind, index) = numbers(device);
    check("wait for the device", ffi::parity_synchronize(kind, index))
}

/// The allocator's figures; `None` where it keeps none.
///
/// # Errors
/// What libtorch refused, in its words.
pub fn device_memory(device: Device) -> Result<Option<DeviceMemory>, NativeError> {
    let (kind, index) = numbers(device);
    let (mut raw, mut known) = (RawMemory::default(), 0);
    // SAFETY: fills both.
    check("read the device's memory figures", unsafe {
        ffi::parity_device_memory(kind, index, &raw mut raw, &raw mut known)
    })?;
    Ok((known != 0).then_some(DeviceMemory {
        allocated_bytes: raw.allocated_bytes,
        peak_allocated_bytes: raw.peak_allocated_bytes,
        reserved_bytes: raw.reserved_bytes,
        peak_reserved_bytes: raw.peak_reserved_bytes,
    }))
}

/// Starts a new peak; false where the allocator keeps none.
///
/// # Errors
///
/// What libtorch refused, in its words.
pub fn reset_peak_memory(device: Device) -> Result<bool, NativeError> {
    let (kind, index) = numbers(device);
    let mut known = 0;
    // SAFETY: writes one byte.
    check("reset the device's memory peak", unsafe {
        ffi::parity_reset_peak_memory(kind, index, &raw mut known)
    })?;
    Ok(known != 0)
}
