//! Kernels as libtorch's profiler saw them: evidence that a pass ran on the
//! device. The operator trace cannot give it, since it sees calls and not kernels.
#![expect(unsafe_code, reason = "reads records that C++ made")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::ptr::null;

use super::error::{NativeError, check};
use super::ffi::{self, RawProfile, RawProfileEvent};
use super::trace::RawDevice;

/// One activity: an operator on the host, a launch, a kernel, a copy.
#[derive(Debug, Clone)]
pub struct ProfileEvent {
    pub name: String,
    /// `cpu_op`, `kernel`, `gpu_memcpy`, `gpu_memset`, `cuda_runtime`, ...
    pub activity: String,
    pub device: RawDevice,
    /// Since the profile began.
    pub start_ns: u64,
    pub duration_ns: u64,
    /// Joins a launch (`cuda_runtime`) with its kernel.
    pub correlation: u64,
    /// The operator that launched it, where the profiler could tell.
    pub operator: Option<String>,
    /// Of a copy; `None` where not told.
    pub bytes: Option<u64>,
}

/// Runs `work` under the profiler; with `cuda`, device activities too. The work
/// must have reached the device's end (synchronise in it) to be seen whole.
///
/// # Errors
///
/// A profile that runs already, or what the profiler refused.
pub fn profile<R>(cuda: bool, work: impl FnOnce() -> R) -> Result<(R, Vec<ProfileEvent>), NativeError> {
    check("start the profiler", ffi::parity_profile_start(cuda.into()))?;
    let guard = StopOnUnwind;
    let result = work();
    std::mem::forget(guard);
    let profile = stop()?;
    let events = read(&profile);
    ffi::parity_profile_release();
    Ok((result, events))
}

struct StopOnUnwind;

impl Drop for StopOnUnwind {
    fn drop(&mut self) {
        if stop().is_ok() {
            ffi::parity_profile_release();
        }
    }
}

fn stop() -> Result<RawProfile, NativeError> {
    let mut profile = RawProfile { events: null(), event_count: 0 };
    // SAFETY: fills the struct, or returns an error.
    check("stop the profiler", unsafe { ffi::parity_profile_stop(&raw mut profile) })?;
    Ok(profile)
}

fn text(text: *const c_char) -> String {
    // SAFETY: a string of the profile, valid until its release.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn read(profile: &RawProfile) -> Vec<ProfileEvent> {
    let raw: &[RawProfileEvent] = if profile.event_count == 0 {
        &[]
    } else {
        // SAFETY: pointer and count were told together; valid until release.
        unsafe { std::slice::from_raw_parts(profile.events, profile.event_count) }
    };
    let operators: HashMap<u64, String> = raw
        .iter()
        .filter(|event| event.device_type == 0 && event.linked_correlation == 0)
        .map(|event| (event.correlation, text(event.name)))
        .collect();
    raw.iter()
        .map(|event| ProfileEvent {
            name: text(event.name),
            activity: text(event.activity),
            device: device(event.device_type, event.device_index),
            start_ns: event.start_ns,
            duration_ns: event.duration_ns,
            correlation: event.correlation,
            operator: operators.get(&event.linked_correlation).cloned(),
            bytes: u64::try_from(event.bytes).ok(),
        })
        .collect()
}

fn device(kind: i32, index: i32) -> RawDevice {
    let index = i8::try_from(index).unwrap_or(-1);
    match kind {
        0 => RawDevice::Cpu,
        1 => RawDevice::Cuda(index),
        13 => RawDevice::Mps,
        kind => RawDevice::Other { kind: i8::try_from(kind).unwrap_or(-1), index },
    }
}
