//! [`Lock`]: one writer a destination.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use super::RecordingError;

/// An advisory lock beside a destination, released (and its file removed) on drop or when
/// the process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of `destination` without waiting.
    ///
    /// # Errors
    /// [`RecordingError::Locked`] if another process (or this one) holds it;
    /// [`RecordingError::Write`] if the lock file cannot be made.
    pub fn acquire(destination: &Path) -> Result<Self, RecordingError> {
        let path = beside(destination, "lock");
        loop {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(|source| RecordingError::Write { path: path.clone(), source })?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(RecordingError::Locked { path: destination.to_owned() });
                }
                Err(TryLockError::Error(source)) => return Err(RecordingError::Write { path, source }),
            }
            // A previous holder may have removed the file between our opening and locking
            // it; then the lock is on a file that nobody else will ever find.
            if same_file(&file, &path) {
                return Ok(Self { file, path });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

/// `.NAME.what` in the directory of `destination`.
pub(super) fn beside(destination: &Path, what: &str) -> PathBuf {
    let name = destination.file_name().unwrap_or_default().to_string_lossy();
    destination.with_file_name(format!(".{name}.{what}"))
}

#[cfg(unix)]
fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn same_file(_: &File, _: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_until_the_first_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let destination = dir.path().join("candle");
        let first = Lock::acquire(&destination).unwrap();
        let error = Lock::acquire(&destination).unwrap_err();
        assert!(matches!(error, RecordingError::Locked { .. }), "{error}");
        drop(first);
        Lock::acquire(&destination).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the lock file is removed");
    }

    #[test]
    fn a_lock_that_cannot_be_made_says_where() {
        let error = Lock::acquire(Path::new("/nowhere/at/all/candle")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
