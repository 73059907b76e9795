//! [`RunError`].

use std::path::PathBuf;

use super::plant::PlantError;
use super::{Target, TargetError};
use crate::architecture::ArchitectureError;
use crate::batch::BatchError;
use crate::checkpoint::CheckpointError;
use crate::engine::EngineError;
use crate::engine::interpreter::PassError;
use crate::precision::PrecisionError;
use crate::recording::RecordingError;

/// A plan could not be carried out. Every message ends in what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The model's config.
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
    /// The weights.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Inputs and labels.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The precision does not fit the program.
    #[error(transparent)]
    Precision(#[from] PrecisionError),
    /// The target cannot be read.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The planted fault cannot be read.
    #[error(transparent)]
    PlantSyntax(#[from] PlantError),
    /// The planted fault has no place in this program.
    #[error("the fault `{plant}` cannot be planted: {reason}; name another place")]
    Plant {
        /// The fault.
        plant: String,
        /// Why.
        reason: String,
    },
    /// The recording could not be written or read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The device does not exist here.
    #[error("{target} is absent: {reason}; name another target, or pass `--if-available`")]
    Absent {
        /// The target.
        target: Target,
        /// Whether the engine has code for it at all.
        built: bool,
        /// What was seen.
        reason: String,
    },
    /// The device answers no known question.
    #[error(
        "{target} cannot compute: {complaint}; see whether another program can use the device, or name \
         another target"
    )]
    Canary {
        /// The target.
        target: Target,
        /// What is wrong.
        complaint: String,
    },
    /// The engine could not be opened.
    #[error("{target} cannot be opened: {source}; run `parity doctor`, or name another target")]
    Engine {
        /// The target.
        target: Target,
        /// What the engine said.
        source: EngineError,
    },
    /// The pass did not finish.
    #[error("{target} did not finish its pass: {source}; repeat it alone with `parity record`")]
    Pass {
        /// The target.
        target: Target,
        /// Where and why.
        source: Box<PassError>,
    },
    /// The file that hands a plan to a process.
    #[error(
        "cannot hand over the plan in `{path}`: {source}; check the directory for temporary files (TMPDIR)"
    )]
    PlanFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The process of a target cannot be started.
    #[error("cannot start `{binary}`: {source}; check that it is there and executable")]
    Spawn {
        /// The program.
        binary: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system does not limit memory.
    #[error("cannot limit memory to {bytes} bytes: {source}; choose a limit that the system allows")]
    MemoryLimit {
        /// The limit.
        bytes: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// SIGINT or SIGTERM came.
    #[error("stopped by {signal}; finished recordings are kept and reused when the command is repeated")]
    Interrupted {
        /// Name of the signal.
        signal: &'static str,
    },
    /// The process that supervises this one is gone.
    #[error("nobody listens to this process any more; run `parity check` instead of starting it by hand")]
    Abandoned,
}

impl RunError {
    /// Whether the request was wrong or a file could not be used, as opposed to something
    /// that a target did.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        !matches!(self, Self::Absent { .. } | Self::Canary { .. } | Self::Engine { .. } | Self::Pass { .. })
    }
}
