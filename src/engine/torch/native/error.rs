//! How an error comes back from C++.

use std::ffi::{CStr, c_char};

use super::ffi;

/// A refusal by libtorch or by the native part of the engine.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// libtorch's own words, with what was being done.
    #[error("failed to {doing}: {message}")]
    Torch { doing: &'static str, message: String },
    /// A name that C cannot hold.
    #[error("failed to {doing}: {text:?} holds a zero byte")]
    ZeroByte { doing: &'static str, text: String },
}

/// Takes a message the native part allocated.
#[expect(unsafe_code, reason = "takes over a string that C++ allocated")]
pub(super) fn take_string(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, ends in a zero byte and is ours until freed below.
    let owned = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: allocated by the native part, freed once.
    unsafe { ffi::parity_native_free_string(text) };
    Some(owned)
}

/// Turns the native part's null-or-message into a result.
pub(super) fn check(doing: &'static str, message: *mut c_char) -> Result<(), NativeError> {
    match take_string(message) {
        None => Ok(()),
        Some(message) => Err(NativeError::Torch { doing, message: message.trim_end().to_owned() }),
    }
}
