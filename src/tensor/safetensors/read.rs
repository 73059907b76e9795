//! [`SafetensorsFile`]: a mapped file and its tensors.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use super::header::{Header, HeaderFault, TensorEntry};
use super::map::map;
use crate::tensor::{Bytes, HostTensor};

/// A safetensors file could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("`{path}`: {fault}")]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub fault: FileFault,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// It does not exist.
    #[error("no such file; check the path")]
    NotFound,
    /// A folder, a pipe, a device.
    #[error("is not a regular file; point to a `.safetensors` file")]
    NotAFile,
    /// The system refused.
    #[error("cannot be read: {0}; check its permissions")]
    Io(std::io::Error),
    /// Its header is wrong.
    #[error(transparent)]
    Header(#[from] HeaderFault),
}

/// A mapped safetensors file. Cloning shares the mapping.
#[derive(Clone, Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    map: Arc<Mmap>,
    header: Arc<Header>,
}

impl SafetensorsFile {
    /// Maps a file and checks its header.
    ///
    /// # Errors
    /// If it is absent, unreadable, or not a sound safetensors file.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::open_inner(path).map_err(|fault| FileError { path: path.to_path_buf(), fault })
    }

    fn open_inner(path: &Path) -> Result<Self, FileFault> {
        let io = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => FileFault::NotFound,
            _ => FileFault::Io(error),
        };
        // Asked before opening: opening a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(FileFault::NotAFile);
        }
        let file = File::open(path).map_err(io)?;
        let map = map(&file).map_err(FileFault::Io)?;
        let header = Header::parse(&map)?;
        Ok(Self { path: path.to_path_buf(), map: Arc::new(map), header: Arc::new(header) })
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tensors in the order of their data.
    #[must_use]
    pub fn entries(&self) -> &[TensorEntry] {
        &self.header.entries
    }

    /// Free text of the file's author.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The entry of that name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&TensorEntry> {
        self.header.entries.iter().find(|entry| entry.name == name)
    }

    /// The tensor of that name, over the mapped bytes.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<HostTensor> {
        self.entry(name).and_then(|entry| self.view(entry))
    }

    /// The tensor of an entry of this file; `None` for an entry of another one that does not fit.
    #[must_use]
    pub fn view(&self, entry: &TensorEntry) -> Option<HostTensor> {
        let bytes = Bytes::Mapped(Arc::clone(&self.map), entry.range.clone());
        HostTensor::new(entry.dtype, entry.shape.clone(), bytes).ok()
    }

    /// The slices `rows` of the first dimension, over the mapped bytes; `None` for a name that
    /// is not there, a scalar, or rows beyond the end.
    #[must_use]
    pub fn rows(&self, name: &str, rows: std::ops::Range<usize>) -> Option<HostTensor> {
        let entry = self.entry(name)?;
        let (count, rest) = entry.shape.split_first()?;
        if rows.start > rows.end || rows.end > *count {
            return None;
        }
        let bytes_per_row = rest.iter().product::<usize>() * entry.dtype.size();
        let start = entry.range.start + rows.start * bytes_per_row;
        let range = start..start + rows.len() * bytes_per_row;
        let shape = std::iter::once(rows.len()).chain(rest.iter().copied()).collect();
        HostTensor::new(entry.dtype, shape, Bytes::Mapped(Arc::clone(&self.map), range)).ok()
    }

    /// All tensors with their names, in the order of their data.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, HostTensor)> {
        self.entries().iter().filter_map(|entry| Some((entry.name.as_str(), self.view(entry)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::DType;
    use crate::tensor::safetensors::write;

    #[test]
    fn a_missing_file_is_named() {
        let error = SafetensorsFile::open(Path::new("/nonexistent/model.safetensors")).unwrap_err();
        assert_eq!(error.to_string(), "`/nonexistent/model.safetensors`: no such file; check the path");
    }

    #[test]
    fn a_folder_is_not_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let error = SafetensorsFile::open(dir.path()).unwrap_err();
        assert!(matches!(error.fault, FileFault::NotAFile), "{error}");
    }

    #[test]
    fn rows_are_views_of_the_first_dimension() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.safetensors");
        let t = HostTensor::from_f64(DType::F32, vec![3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        write(&path, &[("x", &t)], &BTreeMap::new()).unwrap();
        let file = SafetensorsFile::open(&path).unwrap();
        let rows = file.rows("x", 1..3).unwrap();
        assert_eq!((rows.shape(), rows.to_f64()), (&[2, 2][..], vec![2.0, 3.0, 4.0, 5.0]));
        assert!(file.rows("x", 2..4).is_none() && file.rows("y", 0..1).is_none());
    }
}
