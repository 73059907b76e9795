//! `program.json`: written, and read with validation.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Program, ProgramError};

/// Version of the `program.json` format that this build writes.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct FileRef<'a> {
    schema_version: u32,
    #[serde(flatten)]
    program: &'a Program,
}

#[derive(Deserialize)]
struct File {
    schema_version: u32,
    #[serde(flatten)]
    program: Program,
}

/// A program file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProgramFileError {
    /// The file system refused.
    #[error("cannot read `{path}`: {source}; check the path and its permissions")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not the expected JSON.
    #[error("`{path}` is not a program: {source}; write it again with `parity program`")]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
        source: serde_json::Error,
    },
    /// Written by a newer release.
    #[error(
        "`{path}` has schema version {found}, this build reads up to {SCHEMA_VERSION}; use a newer `parity`"
    )]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Readable but not well formed.
    #[error("`{path}`: {source}; the file was edited or damaged, write it again with `parity program`")]
    Program {
        /// The file.
        path: PathBuf,
        /// The violation.
        source: ProgramError,
    },
}

impl Program {
    /// The text of `program.json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let file = FileRef { schema_version: SCHEMA_VERSION, program: self };
        serde_json::to_string_pretty(&file)
            .unwrap_or_else(|e| unreachable!("programs have string keys only: {e}"))
    }

    /// Reads and validates a `program.json`.
    ///
    /// # Errors
    /// If the file cannot be read, parsed, or does not hold a well-formed program.
    pub fn from_json_file(path: &Path) -> Result<Self, ProgramFileError> {
        let path = path.to_path_buf();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(ProgramFileError::Io { path, source }),
        };
        let version: Option<u32> = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|v| v.get("schema_version")?.as_u64()?.try_into().ok());
        if let Some(found) = version.filter(|found| *found > SCHEMA_VERSION) {
            return Err(ProgramFileError::Schema { path, found });
        }
        let file: File = match serde_json::from_str(&text) {
            Ok(file) => file,
            Err(source) => return Err(ProgramFileError::Json { path, source }),
        };
        if file.schema_version > SCHEMA_VERSION {
            return Err(ProgramFileError::Schema { path, found: file.schema_version });
        }
        match file.program.validate() {
            Ok(()) => Ok(file.program),
            Err(source) => Err(ProgramFileError::Program { path, source }),
        }
    }
}
