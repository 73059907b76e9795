//! All that one target produced for one plan, on disk.
//!
//! A recording is a directory of three files that other tools can open:
//!
//! * `recording.json`: who made it, of what ([`Subject`]), and every [`Quantity`] with its
//!   state; it carries a seal (blake3 over its own text);
//! * `tensors.safetensors`: the values, each with a checksum in `recording.json`;
//! * `trace.jsonl`: operator events, one a line.
//!
//! [`Writer`] writes into a temporary directory beside the destination, which takes the
//! destination's name only when every byte is on disk, so a half-written recording is never
//! read. [`Recording`] maps the tensors and verifies each one's checksum the first time it
//! is read.
//!
//! What is *in* a recording is free of judgement: no tolerance, no verdict. Precision and
//! captures are factors; only the [`Subject`] decides whether two recordings may be
//! compared.
//!
//! Checksums are CRC-32. Losing options: blake3 would read the tensors a second time at a
//! third of the speed of memory and answers a question nobody asks here (a forger can
//! rewrite the whole recording); xxHash3 is as fast but has no way to combine the sums of
//! parts, so one large tensor could not be checked by several threads.

mod checksum;
mod error;
mod files;
mod lock;
mod manifest;
mod number;
mod quantity;
mod reader;
mod seal;
mod subject;
mod writer;

#[cfg(test)]
pub(crate) mod tests;

pub use error::RecordingError;
pub use lock::Lock;
pub use manifest::{
    BarePass, Check, Checks, Evaluation, Manifest, Memory, Noise, SCHEMA_VERSION, TargetId, TensorRecord,
    Timing, Tool, TraceRecord,
};
pub use quantity::{Floor, Quantity, QuantityKind, State};
pub use reader::Recording;
pub use subject::Subject;
pub use writer::Writer;
pub(crate) use writer::{discard, duplicate, sweep};
