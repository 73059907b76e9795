//! [`Cache`]: recordings of the reference, kept for the next check.
//!
//! The reference and its noise floors depend on subject, precision and error model, on no
//! device and no other target, and they cost more than everything else. Each is an ordinary
//! recording in a directory named by the key of its plan.

use std::path::{Path, PathBuf};

use crate::recording::{self, Recording, RecordingError};

/// A directory of recordings by plan key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// A cache in a given directory, made when it is first written.
    #[must_use]
    pub const fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The user's cache: `PARITY_CACHE`, else `tensor-parity` in `XDG_CACHE_HOME`, else in
    /// `~/.cache`. `None` if none of them is known.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        Self::from_variables(|name| std::env::var_os(name).map(PathBuf::from), std::env::home_dir())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<PathBuf>, home: Option<PathBuf>) -> Option<Self> {
        let set = |name| variable(name).filter(|path: &PathBuf| !path.as_os_str().is_empty());
        set("PARITY_CACHE")
            // The specification has relative paths ignored.
            .or_else(|| set("XDG_CACHE_HOME").filter(|p| p.is_absolute()).map(|p| p.join("tensor-parity")))
            .or_else(|| home.map(|home| home.join(".cache/tensor-parity")))
            .map(Self::at)
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Puts the recording of `key` at `destination`, if there is one and it is whole; one
    /// that is not is no recording.
    ///
    /// # Errors
    /// If it cannot be put there.
    pub(super) fn fetch(&self, key: &str, destination: &Path) -> Result<Option<Recording>, RecordingError> {
        let Ok(kept) = Recording::open(&self.path(key)) else { return Ok(None) };
        if kept.manifest().plan != key || kept.verify().is_err() {
            return Ok(None);
        }
        recording::duplicate(kept.path(), destination).map(Some)
    }

    /// Keeps a copy of `recording` under the key of its plan.
    ///
    /// # Errors
    /// If it cannot be written. A check can do without.
    pub(super) fn keep(&self, recording: &Path, key: &str) -> Result<(), RecordingError> {
        recording::duplicate(recording, &self.path(key)).map(|_| ())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join("reference").join(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_the_first_that_is_named() {
        let cache = |set: &[(&str, &str)], home: Option<&str>| {
            let find = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v));
            Cache::from_variables(find, home.map(PathBuf::from)).map(|c| c.directory)
        };
        let all = [("PARITY_CACHE", "/p"), ("XDG_CACHE_HOME", "/x")];
        assert_eq!(cache(&all, Some("/h")), Some("/p".into()));
        assert_eq!(cache(&all[1..], Some("/h")), Some("/x/tensor-parity".into()));
        assert_eq!(cache(&[("XDG_CACHE_HOME", "")], Some("/h")), Some("/h/.cache/tensor-parity".into()));
        assert_eq!(cache(&[("XDG_CACHE_HOME", "x")], Some("/h")), Some("/h/.cache/tensor-parity".into()));
        assert_eq!(cache(&[], None), None);
    }
}
