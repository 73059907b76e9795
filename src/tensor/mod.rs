//! The one host tensor type: the only thing that crosses an engine boundary.
//!
//! Bytes, shape and dtype; row-major, contiguous, little-endian. The bytes may be owned
//! or lie in a mapped file; nothing depends on their alignment.

mod host;

pub use host::{Bytes, HostTensor, TensorError};
