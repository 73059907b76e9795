//! Libraries that execute programs, behind one trait and one interpreter.
//!
//! An engine maps each operator to what users of that engine really call, says which
//! operators it supports in which dtypes, and answers where a tensor lives by asking the
//! tensor. The interpreter is the same for all, so whatever differs between two recordings
//! was done by an engine. Nothing here knows a tolerance.

pub mod canary;
pub mod candle;
pub mod interpreter;
pub mod reference;
pub mod torch;

mod api;
mod device;
mod evidence;

pub use api::{BackwardRequest, Call, Engine, EngineError, EngineInfo, Leaf, Support, Unsupported};
pub use device::{DeviceKind, DeviceSpec, UnknownDevice};
pub use evidence::{DeviceEvidence, KernelEvidence};
