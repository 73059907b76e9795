//! Operator events: what ran where. One model for all engines.
//!
//! [`OperatorEvent`] is what an engine reports (libtorch from its dispatcher, others from
//! the interpreter). On top of it stand pure functions: [`detect`] finds work that left the
//! device a pass was asked to run on, and says of which kind; [`summarise`] counts operators,
//! devices and transfers; [`write_chrome`] exports for Perfetto; [`write_events`] and
//! [`read_events`] are `trace.jsonl`.

mod chrome;
mod event;
mod fallback;
mod jsonl;
mod nesting;
mod placement;
mod summary;
mod transfer;

pub use chrome::write_chrome;
pub use event::{EventKind, OperatorEvent, Phase, TensorMeta, is_host};
pub use fallback::{ALWAYS_ON_CPU, AlwaysOnCpu, Fallback, FallbackKind};
pub use jsonl::{TraceError, read_events, write_events};
pub use placement::{PassTrace, Placement, detect};
pub use summary::{DeviceRow, OperatorRow, Summary, TransferRow, summarise};
pub use transfer::{Transfer, count_transfers};

#[cfg(test)]
mod tests;
