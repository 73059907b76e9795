//! Operator events: what ran where. One model for all engines.

mod event;

pub use event::{EventKind, OperatorEvent, Phase, TensorMeta, is_host};
