//! [`Writer`]: a recording while it is being made.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::checksum::crc32;
use super::files::TensorWriter;
use super::lock::{Lock, beside};
use super::{Manifest, Recording, RecordingError, TensorRecord, TraceRecord, seal};
use crate::tensor::HostTensor;
use crate::trace::OperatorEvent;

pub(super) const MANIFEST: &str = "recording.json";
pub(super) const TENSORS: &str = "tensors.safetensors";
pub(super) const TRACE: &str = "trace.jsonl";

/// Writes a recording as it is produced into a temporary directory beside its destination.
///
/// [`Writer::finish`] brings it to the disk and gives it its name. A writer that is dropped
/// before leaves nothing behind; one whose process is killed leaves a hidden directory that
/// no reader takes for a recording and that the next writer removes.
#[derive(Debug)]
pub struct Writer {
    destination: PathBuf,
    directory: TempDir,
    tensors: TensorWriter,
    records: BTreeMap<String, TensorRecord>,
    trace: Option<TraceWriter>,
    // Dropped last: the destination is ours until the directory is gone or renamed.
    _lock: Lock,
}

#[derive(Debug)]
struct TraceWriter {
    out: BufWriter<File>,
    hasher: crc32fast::Hasher,
    events: u64,
    bytes: u64,
}

impl Writer {
    /// Opens a recording at `destination`, whose parent directories are made as needed. A
    /// recording that is there stays until [`Writer::finish`] replaces it.
    ///
    /// # Errors
    /// If another process writes it, something else has its name, or the file system
    /// refuses.
    pub fn create(destination: &Path) -> Result<Self, RecordingError> {
        let parent = parent_of(destination);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| RecordingError::Write { path, source }
        };
        fs::create_dir_all(parent).map_err(failed(parent))?;
        let lock = Lock::acquire(destination)?;
        if destination.exists() && !destination.join(MANIFEST).exists() {
            return Err(RecordingError::Occupied { path: destination.to_owned() });
        }
        let prefix = partial_prefix(destination);
        remove_leftovers(parent, &prefix);
        let directory =
            tempfile::Builder::new().prefix(&prefix).tempdir_in(parent).map_err(failed(destination))?;
        let path = directory.path().join(TENSORS);
        let tensors = TensorWriter::create(&path).map_err(failed(&path))?;
        Ok(Self {
            destination: destination.to_owned(),
            directory,
            tensors,
            records: BTreeMap::new(),
            trace: None,
            _lock: lock,
        })
    }

    /// Appends one tensor.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn tensor(&mut self, name: &str, tensor: &HostTensor) -> Result<(), RecordingError> {
        self.tensors.append(name, tensor).map_err(|source| self.failed(source))?;
        let record = TensorRecord {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            crc32: crc32(tensor.bytes()),
        };
        self.records.insert(name.to_owned(), record);
        Ok(())
    }

    /// Appends one operator event. A recording with no event has no trace.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn event(&mut self, event: &OperatorEvent) -> Result<(), RecordingError> {
        if self.trace.is_none() {
            let file = File::create_new(self.directory.path().join(TRACE)).map_err(|e| self.failed(e))?;
            let out = BufWriter::with_capacity(1 << 18, file);
            self.trace = Some(TraceWriter { out, hasher: crc32fast::Hasher::new(), events: 0, bytes: 0 });
        }
        if let Some(trace) = &mut self.trace {
            let written = trace.write(event);
            written.map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    /// Brings everything to the disk and gives the recording its name, in place of one that
    /// had it. `tensors`, `trace` and `fingerprint` of the manifest are filled in here.
    ///
    /// # Errors
    /// If the file system refuses; then nothing of the new recording is left.
    pub fn finish(self, mut manifest: Manifest) -> Result<Recording, RecordingError> {
        let destination = self.destination.clone();
        let failed = |source| RecordingError::Write { path: destination.clone(), source };
        let Self { directory, tensors, records, trace, _lock: lock, .. } = self;
        tensors.finish().map_err(failed)?;
        manifest.tensors = records;
        super::reader::check_values(&manifest, &destination)?;
        manifest.fingerprint = manifest.subject.fingerprint();
        manifest.trace = trace.map(TraceWriter::finish).transpose().map_err(failed)?;
        let json = serde_json::to_string_pretty(&manifest).map_err(|e| failed(e.into()))?;
        let mut file = File::create_new(directory.path().join(MANIFEST)).map_err(failed)?;
        file.write_all(seal::seal(&json).as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        sync_directory(directory.path()).map_err(failed)?;
        publish(directory, &destination).map_err(failed)?;
        drop(lock);
        Recording::open(&destination)
    }

    fn failed(&self, source: io::Error) -> RecordingError {
        RecordingError::Write { path: self.destination.clone(), source }
    }
}

impl TraceWriter {
    fn write(&mut self, event: &OperatorEvent) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.hasher.update(&line);
        self.bytes += line.len() as u64;
        self.events += 1;
        self.out.write_all(&line)
    }

    fn finish(self) -> io::Result<TraceRecord> {
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(TraceRecord { events: self.events, bytes: self.bytes, crc32: self.hasher.finalize() })
    }
}

/// Removes the recording at `path`: its own files, and the directory if nothing else is in
/// it. What is no recording stays.
///
/// # Errors
/// If another process writes it or the file system refuses.
pub(crate) fn discard(path: &Path) -> Result<(), RecordingError> {
    if !path.join(MANIFEST).exists() {
        return Ok(());
    }
    let _lock = Lock::acquire(path)?;
    // The manifest first: without it the rest is no recording.
    for name in [MANIFEST, TENSORS, TRACE] {
        let file = path.join(name);
        match fs::remove_file(&file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(RecordingError::Write { path: file, source });
            }
            _ => {}
        }
    }
    let _ = fs::remove_dir(path);
    Ok(())
}

/// Removes what a writer of `destination` whose process died left beside it.
///
/// # Errors
/// If another process writes it.
pub(crate) fn sweep(destination: &Path) -> Result<(), RecordingError> {
    let parent = parent_of(destination);
    if parent.is_dir() {
        let _lock = Lock::acquire(destination)?;
        remove_leftovers(parent, &partial_prefix(destination));
    }
    Ok(())
}

/// A second name for the recording in `from`: the same files (linked where the file system
/// can, else copied) under `destination`, in place of a recording that is there.
///
/// # Errors
/// If another process writes `destination`, something else has its name, or the file system
/// refuses.
pub(crate) fn duplicate(from: &Path, destination: &Path) -> Result<Recording, RecordingError> {
    let writer = Writer::create(destination)?;
    let failed = |source| RecordingError::Write { path: destination.to_owned(), source };
    for name in [TENSORS, TRACE, MANIFEST] {
        let (old, new) = (from.join(name), writer.directory.path().join(name));
        if name == TENSORS {
            fs::remove_file(&new).map_err(failed)?;
        }
        if old.exists() && fs::hard_link(&old, &new).is_err() {
            fs::copy(&old, &new).map_err(failed)?;
            File::open(&new).and_then(|file| file.sync_all()).map_err(failed)?;
        }
    }
    let Writer { directory, _lock: lock, .. } = writer;
    publish(directory, destination).map_err(failed)?;
    drop(lock);
    Recording::open(destination)
}

/// Gives the complete directory its name. A recording that has it is moved aside first: a
/// reader in between sees none, never half of one.
fn publish(directory: TempDir, destination: &Path) -> io::Result<()> {
    let old = beside(destination, "replaced");
    if destination.exists() {
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
        fs::rename(destination, &old)?;
    }
    if let Err(error) = fs::rename(directory.path(), destination) {
        if old.exists() {
            let _ = fs::rename(&old, destination);
        }
        return Err(error);
    }
    // The temporary name is gone; what is left to do is to forget it.
    let _ = directory.keep();
    // `tempfile` makes directories for the owner alone; a recording is meant to be passed on.
    open_permissions(destination)?;
    if old.exists() {
        fs::remove_dir_all(&old)?;
    }
    sync_directory(parent_of(destination))
}

/// The directory that `path` lies in.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn partial_prefix(destination: &Path) -> String {
    let name = destination.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.partial-")
}

/// Removes what killed writers of the same destination left; we hold its lock.
fn remove_leftovers(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(unix)]
fn open_permissions(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // What the parent allows, a new directory would allow too.
    let mode = fs::metadata(parent_of(directory))?.permissions().mode() & 0o755;
    fs::set_permissions(directory, fs::Permissions::from_mode(mode | 0o700))
}

#[cfg(not(unix))]
fn open_permissions(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Brings the names in a directory to the disk, where the system can.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
