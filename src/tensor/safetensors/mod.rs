//! The safetensors format: a list of named tensors in one file.
//!
//! Layout: a little-endian u64 N, N bytes of JSON (name to dtype, shape and byte range;
//! `__metadata__` to strings), then the data. Reading maps the file and parses the header
//! here rather than with the `safetensors` crate: that crate reads into a map, which keeps
//! the last of two equal keys without a word, and its errors name neither file nor key nor
//! remedy. A hostile header costs nothing: its length is checked against the file before
//! anything is looked at, and no allocation exceeds a small multiple of bytes that exist.
//!
//! Alignment of what [`Writer`] writes: the header is padded with spaces until the data
//! begins at a multiple of 8 bytes; tensors follow by falling element size (8, 4, 2, 1 bytes),
//! by name within one size. Every tensor therefore starts at a multiple of its own element
//! size and no gaps are needed (the format allows none). Reading depends on no alignment.

mod header;
mod map;
mod read;
mod write;

pub use header::{Header, HeaderFault, TensorEntry};
pub use read::{FileError, FileFault, SafetensorsFile};
pub use write::{TensorSpec, WriteError, Writer, write};
