//! The one host tensor type: the only thing that crosses an engine boundary.
//!
//! Bytes, shape and dtype; row-major, contiguous, little-endian. The bytes may be owned
//! or lie in a mapped file; nothing depends on their alignment. [`safetensors`] is the one
//! file format that holds them; [`content_hash`] and [`set_hash`] say whether two tensors,
//! or two named sets of them, are the same.

mod hash;
mod host;
pub mod safetensors;

pub use hash::{content_hash, set_hash};
pub use host::{Bytes, HostTensor, TensorError};
