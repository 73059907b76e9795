//! [`Recording`]: a complete recording, opened for reading.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::checksum::crc32;
use super::writer::{MANIFEST, TENSORS, TRACE};
use super::{Manifest, Quantity, RecordingError, SCHEMA_VERSION, seal};
use crate::tensor::HostTensor;
use crate::tensor::safetensors::SafetensorsFile;
use crate::trace::OperatorEvent;

/// A recording on disk. Tensors stay there until they are asked for.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    manifest: Manifest,
    tensors: BTreeMap<String, HostTensor>,
    verified: Mutex<HashSet<String>>,
}

#[derive(serde::Deserialize)]
struct Version {
    schema_version: u32,
}

impl Recording {
    /// Opens the recording in the directory `path`: reads and checks `recording.json`, maps
    /// the tensors and checks that the two agree in names, dtypes and shapes. Values are
    /// checked when they are read.
    ///
    /// # Errors
    /// If there is none, or it is newer than this build, edited, truncated or malformed.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let manifest = read_manifest(path)?;
        let tensors = read_tensors(&path.join(TENSORS), &manifest)?;
        Ok(Self { path: path.to_owned(), manifest, tensors, verified: Mutex::new(HashSet::new()) })
    }

    /// Only `recording.json` of the recording in `path`, checked.
    ///
    /// # Errors
    /// As [`Recording::open`], without those about tensors.
    pub fn manifest_of(path: &Path) -> Result<Manifest, RecordingError> {
        read_manifest(path)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything but tensors and trace.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// All quantities, in program order.
    #[must_use]
    pub fn quantities(&self) -> &[Quantity] {
        &self.manifest.quantities
    }

    /// The quantity of this name, if it was asked for.
    #[must_use]
    pub fn quantity(&self, name: &str) -> Option<&Quantity> {
        self.manifest.quantities.iter().find(|q| q.name == name)
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has_tensor(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The tensor of this name (a quantity's name, or one of [`super::Evaluation`]), mapped
    /// from the file. Its checksum is verified the first time.
    ///
    /// # Errors
    /// [`RecordingError::Unknown`] if there is none, [`RecordingError::Damaged`] if its
    /// bytes are not what was written.
    pub fn tensor(&self, name: &str) -> Result<HostTensor, RecordingError> {
        let unknown = || RecordingError::Unknown { path: self.path.clone(), tensor: name.to_owned() };
        let tensor = self.tensors.get(name).ok_or_else(unknown)?;
        let record = self.manifest.tensors.get(name).ok_or_else(unknown)?;
        if !self.lock_verified().contains(name) {
            let found = crc32(tensor.bytes());
            if found != record.crc32 {
                return Err(RecordingError::Damaged {
                    path: self.path.join(TENSORS),
                    tensor: name.to_owned(),
                    expected: record.crc32,
                    found,
                });
            }
            self.lock_verified().insert(name.to_owned());
        }
        Ok(tensor.clone())
    }

    /// Verifies every tensor and the trace.
    ///
    /// # Errors
    /// The first that is damaged.
    pub fn verify(&self) -> Result<(), RecordingError> {
        for name in self.tensors.keys() {
            self.tensor(name)?;
        }
        self.events().map(|_| ())
    }

    /// Operator events in order; empty where none were asked for.
    ///
    /// # Errors
    /// If the trace is damaged or cannot be read.
    pub fn events(&self) -> Result<Vec<OperatorEvent>, RecordingError> {
        let Some(record) = &self.manifest.trace else { return Ok(Vec::new()) };
        let path = self.path.join(TRACE);
        let bytes = fs::read(&path).map_err(|source| RecordingError::Read { path: path.clone(), source })?;
        if bytes.len() as u64 != record.bytes || crc32(&bytes) != record.crc32 {
            return Err(RecordingError::Trace { path });
        }
        bytes
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| {
                serde_json::from_slice(line)
                    .map_err(|e| RecordingError::Malformed { path: path.clone(), reason: e.to_string() })
            })
            .collect()
    }

    fn lock_verified(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        // A set of names is whole after a panic in between.
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_manifest(directory: &Path) -> Result<Manifest, RecordingError> {
    let path = directory.join(MANIFEST);
    let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            RecordingError::NotThere { path: directory.to_owned() }
        }
        _ => RecordingError::Read { path: path.clone(), source },
    })?;
    let malformed = |reason: String| RecordingError::Malformed { path: path.clone(), reason };
    // The version first: a newer format may differ in everything else.
    let version: Version = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    if version.schema_version > SCHEMA_VERSION {
        let (found, newest) = (version.schema_version, SCHEMA_VERSION);
        return Err(RecordingError::Newer { path, found, newest });
    }
    if version.schema_version == 0 {
        return Err(malformed("schema version 0 never existed".to_owned()));
    }
    match seal::verify(&text) {
        Some(true) => {}
        Some(false) => return Err(RecordingError::Edited { path }),
        None => return Err(malformed("it has no seal".to_owned())),
    }
    let manifest: Manifest = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    if manifest.fingerprint != manifest.subject.fingerprint() {
        return Err(malformed("its fingerprint is not that of its subject".to_owned()));
    }
    check_values(&manifest, &path)?;
    Ok(manifest)
}

/// Every quantity that claims a value has a tensor.
pub(super) fn check_values(manifest: &Manifest, path: &Path) -> Result<(), RecordingError> {
    let lost = manifest.quantities.iter().find(|q| q.has_value() && !manifest.tensors.contains_key(&q.name));
    match lost {
        None => Ok(()),
        Some(quantity) => Err(RecordingError::Malformed {
            path: path.to_owned(),
            reason: format!("quantity `{}` has no tensor", quantity.name),
        }),
    }
}

/// The tensors of the file, checked against the manifest.
fn read_tensors(path: &Path, manifest: &Manifest) -> Result<BTreeMap<String, HostTensor>, RecordingError> {
    let file = SafetensorsFile::open(path)?;
    let mut tensors = BTreeMap::new();
    for (name, record) in &manifest.tensors {
        match file.tensor(name) {
            Some(t) if t.dtype() == record.dtype && t.shape() == record.shape => {
                tensors.insert(name.clone(), t);
            }
            other => {
                return Err(RecordingError::Disagrees {
                    path: path.to_owned(),
                    tensor: name.clone(),
                    dtype: record.dtype,
                    shape: record.shape.clone(),
                    found: other
                        .map_or_else(|| "not there".to_owned(), |t| format!("{} {:?}", t.dtype(), t.shape())),
                });
            }
        }
    }
    match file.entries().iter().find(|entry| !tensors.contains_key(&entry.name)) {
        None => Ok(tensors),
        Some(entry) => Err(RecordingError::Malformed {
            path: path.to_owned(),
            reason: format!("`recording.json` does not list its tensor `{}`", entry.name),
        }),
    }
}
