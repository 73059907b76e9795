//! A request that could not be carried out: message and exit code.

use std::error::Error;
use std::path::PathBuf;

use crate::verdict::exit;

/// Why a subcommand ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request was wrong or a file could not be read: the message says what to do.
    #[error("{0}")]
    Request(String),
    /// What was asked for is not here.
    #[error("{0}")]
    Incomplete(String),
    /// The target did not finish.
    #[error("{0}")]
    Deviation(String),
    /// Recordings of different subjects.
    #[error("{0}")]
    NotComparable(String),
    /// A result could not be written.
    #[error(
        "cannot write `{path}`: {source}; check the path and its permissions, or choose another with --out"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Failure {
    /// Any error of the library, with its causes.
    pub fn request(error: &(dyn Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            let message = next.to_string();
            // Most errors already include their cause in their own message.
            if !text.contains(&message) {
                text = format!("{text}: {message}");
            }
            cause = next.source();
        }
        Self::Request(text)
    }

    /// Exit code of the process.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Request(_) | Self::Write { .. } => exit::USAGE,
            Self::Incomplete(_) => exit::INCOMPLETE,
            Self::Deviation(_) => exit::DEVIATION,
            Self::NotComparable(_) => exit::NOT_COMPARABLE,
        }
    }

    /// Prints the message on standard error.
    pub fn print(&self) {
        let style = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
        anstream::eprintln!("{style}error:{style:#} {self}");
    }
}

/// Turns a library error into a failure of the request.
pub fn request<E: Error + 'static>(error: E) -> Failure {
    Failure::request(&error)
}
