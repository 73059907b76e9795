//! [`RecordingError`].

use std::path::PathBuf;

use crate::numerics::DType;
use crate::tensor::safetensors::FileError;

/// A recording could not be written or read. Every message ends in what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// No such recording.
    #[error(
        "`{path}` holds no recording (no `recording.json`); name a directory that `parity check` or `parity record` wrote"
    )]
    NotThere {
        /// The directory.
        path: PathBuf,
    },
    /// Reading failed.
    #[error("cannot read `{path}`: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The tensor file cannot be opened or has no sound header.
    #[error("the recorded tensors cannot be used: {0}; or make the recording again")]
    File(#[from] FileError),
    /// Writing failed.
    #[error("cannot write `{path}`: {source}; {}", remedy(source))]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process writes the same recording.
    #[error("`{path}` is being written by another process; wait for it, or give this run another `--out`")]
    Locked {
        /// The destination.
        path: PathBuf,
    },
    /// The destination exists and is not a recording, so it is not replaced.
    #[error("`{path}` exists and is not a recording; move it away, or give another `--out`")]
    Occupied {
        /// The destination.
        path: PathBuf,
    },
    /// Written by a newer release.
    #[error(
        "`{path}` has schema version {found}, this build reads up to {newest}; use a newer `parity`, or make the recording again with this one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that this build reads.
        newest: u32,
    },
    /// `recording.json` is not what the format says.
    #[error("`{path}` is not a recording: {reason}; make the recording again")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column if it is the JSON.
        reason: String,
    },
    /// The text of `recording.json` does not match its seal.
    #[error(
        "`{path}` was changed after it was written (its seal does not match); restore the original, or make the recording again"
    )]
    Edited {
        /// The file.
        path: PathBuf,
    },
    /// A tensor's bytes do not match its checksum.
    #[error(
        "tensor `{tensor}` in `{path}` was changed or damaged after it was written (checksum {found:08x}, expected {expected:08x}); restore the original, or make the recording again"
    )]
    Damaged {
        /// The tensor file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// Checksum in `recording.json`.
        expected: u32,
        /// Checksum of the bytes.
        found: u32,
    },
    /// A tensor that `recording.json` lists is not in the file, or not as listed.
    #[error(
        "tensor `{tensor}` in `{path}` is {found}, `recording.json` says {dtype} {shape:?}; restore the original, or make the recording again"
    )]
    Disagrees {
        /// The tensor file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// Dtype in `recording.json`.
        dtype: DType,
        /// Shape in `recording.json`.
        shape: Vec<usize>,
        /// What the file has.
        found: String,
    },
    /// The trace does not match its checksum.
    #[error(
        "`{path}` was changed or truncated after it was written; restore the original, or make the recording again"
    )]
    Trace {
        /// The trace file.
        path: PathBuf,
    },
    /// A name that is not in the recording.
    #[error("the recording `{path}` has no tensor `{tensor}`; `parity show` lists what it has")]
    Unknown {
        /// The recording.
        path: PathBuf,
        /// The name asked for.
        tensor: String,
    },
}

/// What to do about a failed write.
fn remedy(source: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match source.kind() {
        StorageFull | QuotaExceeded => {
            "free some space, or write elsewhere with `--out`; nothing half-written was left"
        }
        ReadOnlyFilesystem => "the file system is read-only: write elsewhere with `--out`",
        PermissionDenied => "change its permissions, or write elsewhere with `--out`",
        _ => "check the path, or write elsewhere with `--out`",
    }
}
