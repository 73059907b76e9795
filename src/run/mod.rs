//! From a plan to a recording, each target in a process of its own.
//!
//! [`execute`] does one plan in this process: it opens the engine, runs the passes, checks
//! the target against itself and writes the recording. [`supervise`] does many, each in a
//! child process of the same binary, one after the other so that measurements do not disturb
//! each other, the reference first. A crash, an abort in a driver or an out-of-memory kill
//! then is an [`Outcome`] of one target and not the end of the check; environment switches
//! and peak memory belong to one target too. The losing option, threads, would share all of
//! that.
//!
//! A finished recording whose plan has not changed is used again; the reference, which
//! costs most and depends on no device, is also kept in a cache of the user.

mod cache;
mod child;
mod coverage;
mod device;
mod engines;
mod error;
mod evaluate;
mod hooks;
mod noise;
mod plan;
mod plant;
mod prepare;
mod process;
mod progress;
mod quantities;
mod record;
pub mod replay;
mod supervise;
mod target;

#[cfg(all(test, unix))]
mod tests;

pub use cache::Cache;
pub use engines::{EngineSettings, EngineVisitor, is_here, with_engine};
pub use error::RunError;
pub use plan::{Captures, Data, NoisePlan, Plan, SubjectSpec, build_identity};
pub use plant::{Plant, PlantError, PlantKind};
pub use prepare::{Prepared, Samples};
pub use process::{Ended, Usage, own_peak_bytes, signal_name};
pub use progress::{Message, Progress, Stage};
pub use quantities::quantities as planned_quantities;
pub use record::execute;
pub use supervise::{Event, Outcome, Supervision, serve, supervise};
pub use target::{EngineKind, Target, TargetError};
