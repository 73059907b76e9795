//! [`Writer`]: header first, then tensors in any order, whole or in pieces.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::header::{MAX_HEADER_BYTES, format_name};
use crate::numerics::DType;
use crate::tensor::HostTensor;

/// Data begins at a multiple of this.
const ALIGNMENT: usize = 8;

/// Name, dtype and shape of a tensor that will be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Key.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

/// A safetensors file could not be written. Nothing is left at its place.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system refused.
    #[error("cannot write `{path}`: {source}; check the folder, its permissions and the free space")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Two tensors of one name.
    #[error("`{path}`: two tensors are called `{name}`; give them different names")]
    DuplicateName {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// More than the format or the machine can hold.
    #[error("`{path}`: too large to be written; split it into several files")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A tensor that was not announced, or not in this dtype and shape.
    #[error("`{path}`: `{name}` is not what was announced; announce every tensor as it will be written")]
    Unannounced {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// More or fewer bytes than announced.
    #[error(
        "`{path}`: `{name}` was announced with {expected} bytes, {written} were written; \
         write every announced tensor exactly once"
    )]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Bytes announced.
        expected: usize,
        /// Bytes written.
        written: usize,
    },
}

struct Slot {
    dtype: DType,
    shape: Vec<usize>,
    offset: u64,
    bytes: usize,
    written: usize,
}

/// Writes one file: all tensors are announced first, then each is written, from borrowed
/// bytes, whole or in pieces, in any order. The file appears under its name only when
/// [`Writer::finish`] has found it complete; a writer that is dropped leaves nothing.
pub struct Writer {
    path: PathBuf,
    file: NamedTempFile,
    slots: BTreeMap<String, Slot>,
}

impl Writer {
    /// Starts the file: writes the header for `specs`.
    ///
    /// # Errors
    /// If the folder is not writable, a name repeats, or sizes overflow.
    pub fn create(
        path: &Path,
        specs: Vec<TensorSpec>,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Self, WriteError> {
        let path = path.to_path_buf();
        let (header, slots) = layout(&path, specs, metadata)?;
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        builder.prefix(".parity-").suffix(".tmp");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any new file: readable for others unless the umask says no.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let result = builder.tempfile_in(folder).and_then(|mut file| {
            file.write_all(&header)?;
            Ok(file)
        });
        match result {
            Ok(file) => Ok(Self { path, file, slots }),
            Err(source) => Err(WriteError::Io { path, source }),
        }
    }

    /// Writes one announced tensor as a whole.
    ///
    /// # Errors
    /// If it was announced otherwise or the system refuses.
    pub fn write(&mut self, name: &str, tensor: &HostTensor) -> Result<(), WriteError> {
        match self.slots.get(name) {
            Some(slot) if slot.dtype == tensor.dtype() && slot.shape == tensor.shape() => {
                self.append(name, tensor.bytes())
            }
            _ => Err(WriteError::Unannounced { path: self.path.clone(), name: name.to_owned() }),
        }
    }

    /// Writes the next bytes (row-major, little-endian) of an announced tensor.
    ///
    /// # Errors
    /// If there are more than announced or the system refuses.
    pub fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(slot) = self.slots.get_mut(name) else {
            return Err(WriteError::Unannounced { path: self.path.clone(), name: name.to_owned() });
        };
        let written = slot.written.saturating_add(bytes.len());
        if written > slot.bytes {
            let (path, name, expected) = (self.path.clone(), name.to_owned(), slot.bytes);
            return Err(WriteError::Incomplete { path, name, expected, written });
        }
        let position = SeekFrom::Start(slot.offset + slot.written as u64);
        let file = self.file.as_file_mut();
        if let Err(source) = file.seek(position).and_then(|_| file.write_all(bytes)) {
            return Err(WriteError::Io { path: self.path.clone(), source });
        }
        slot.written = written;
        Ok(())
    }

    /// Checks that everything announced is there and gives the file its name.
    ///
    /// # Errors
    /// If a tensor is incomplete or the file cannot be renamed; then nothing is left.
    pub fn finish(self) -> Result<(), WriteError> {
        let Self { path, file, slots } = self;
        for (name, slot) in slots {
            if slot.written != slot.bytes {
                let (expected, written) = (slot.bytes, slot.written);
                return Err(WriteError::Incomplete { path, name, expected, written });
            }
        }
        match file.persist(&path) {
            Ok(_) => Ok(()),
            Err(error) => Err(WriteError::Io { path, source: error.error }),
        }
    }
}

/// Writes named tensors as one file, which replaces an older one when it is complete.
///
/// # Errors
/// If a name repeats or the system refuses; then an older file is untouched.
pub fn write<S: AsRef<str>>(
    path: &Path,
    tensors: &[(S, &HostTensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<(), WriteError> {
    let specs = tensors
        .iter()
        .map(|(name, tensor)| TensorSpec {
            name: name.as_ref().to_owned(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
        })
        .collect();
    let mut writer = Writer::create(path, specs, metadata)?;
    for (name, tensor) in tensors {
        writer.write(name.as_ref(), tensor)?;
    }
    writer.finish()
}

/// Header bytes, length and padding included, and where each tensor goes.
fn layout(
    path: &Path,
    mut specs: Vec<TensorSpec>,
    metadata: &BTreeMap<String, String>,
) -> Result<(Vec<u8>, BTreeMap<String, Slot>), WriteError> {
    let too_large = || WriteError::TooLarge { path: path.to_path_buf() };
    specs.sort_by(|a, b| b.dtype.size().cmp(&a.dtype.size()).then_with(|| a.name.cmp(&b.name)));
    let mut json = serde_json::Map::new();
    if !metadata.is_empty() {
        json.insert("__metadata__".to_owned(), serde_json::json!(metadata));
    }
    let mut slots = BTreeMap::new();
    let mut offset = 0usize;
    for spec in specs {
        let bytes = spec.shape.iter().try_fold(spec.dtype.size(), |product, dim| product.checked_mul(*dim));
        let bytes = bytes.ok_or_else(too_large)?;
        let end = offset.checked_add(bytes).ok_or_else(too_large)?;
        let entry = serde_json::json!({
            "dtype": format_name(spec.dtype),
            "shape": spec.shape,
            "data_offsets": [offset, end],
        });
        let slot = Slot { dtype: spec.dtype, shape: spec.shape, offset: offset as u64, bytes, written: 0 };
        if spec.name == "__metadata__" || json.insert(spec.name.clone(), entry).is_some() {
            return Err(WriteError::DuplicateName { path: path.to_path_buf(), name: spec.name });
        }
        slots.insert(spec.name, slot);
        offset = end;
    }
    let mut text = serde_json::Value::Object(json).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
    if text.len() as u64 > MAX_HEADER_BYTES {
        return Err(too_large());
    }
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend_from_slice(&text);
    for slot in slots.values_mut() {
        slot.offset = slot.offset.checked_add(header.len() as u64).ok_or_else(too_large)?;
    }
    Ok((header, slots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::safetensors::SafetensorsFile;

    fn tensor(dtype: DType, n: usize) -> HostTensor {
        let values: Vec<f64> = (0..n).map(|i| i as f64).collect();
        HostTensor::from_f64(dtype, vec![n], &values).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back_and_every_tensor_is_aligned() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        let tensors: Vec<(String, HostTensor)> = DType::ALL
            .into_iter()
            .rev()
            .enumerate()
            .map(|(i, d)| (d.name().to_owned(), tensor(d, 2 * i + 1)))
            .collect();
        let borrowed: Vec<_> = tensors.iter().map(|(n, t)| (n, t)).collect();
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        write(&path, &borrowed, &metadata).unwrap();
        let file = SafetensorsFile::open(&path).unwrap();
        assert_eq!(file.metadata(), &metadata);
        for (name, tensor) in &tensors {
            let back = file.tensor(name).unwrap();
            assert_eq!((back.dtype(), back.shape()), (tensor.dtype(), tensor.shape()));
            assert_eq!(back.bytes(), tensor.bytes());
            assert_eq!(file.entry(name).unwrap().range.start % tensor.dtype().size(), 0, "{name}");
        }
        // The reference implementation of the format accepts the file.
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(::safetensors::SafeTensors::deserialize(&bytes).unwrap().len(), 6);
    }

    #[test]
    fn pieces_may_come_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        let spec = |name: &str| TensorSpec { name: name.to_owned(), dtype: DType::U8, shape: vec![2] };
        let mut writer = Writer::create(&path, vec![spec("a"), spec("b")], &BTreeMap::new()).unwrap();
        for (name, byte) in [("b", 3), ("a", 1), ("a", 2), ("b", 4)] {
            writer.append(name, &[byte]).unwrap();
        }
        assert!(!path.exists(), "the name appears only with the whole file");
        writer.finish().unwrap();
        let file = SafetensorsFile::open(&path).unwrap();
        assert_eq!(file.tensor("a").unwrap().bytes(), [1, 2]);
        assert_eq!(file.tensor("b").unwrap().bytes(), [3, 4]);
    }

    #[test]
    fn an_incomplete_file_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.safetensors");
        let spec = TensorSpec { name: "a".to_owned(), dtype: DType::U8, shape: vec![2] };
        let mut writer = Writer::create(&path, vec![spec.clone()], &BTreeMap::new()).unwrap();
        writer.append("a", &[1]).unwrap();
        assert!(matches!(writer.finish(), Err(WriteError::Incomplete { written: 1, .. })));
        let mut writer = Writer::create(&path, vec![spec.clone()], &BTreeMap::new()).unwrap();
        assert!(matches!(writer.append("a", &[1, 2, 3]), Err(WriteError::Incomplete { .. })));
        assert!(matches!(writer.append("b", &[1]), Err(WriteError::Unannounced { .. })));
        assert!(matches!(writer.write("a", &tensor(DType::F32, 2)), Err(WriteError::Unannounced { .. })));
        drop(writer);
        assert!(matches!(
            Writer::create(&path, vec![spec.clone(), spec], &BTreeMap::new()),
            Err(WriteError::DuplicateName { .. })
        ));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_with_the_path() {
        let error =
            write::<&str>(Path::new("/nonexistent/x.safetensors"), &[], &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `/nonexistent/x.safetensors`"), "{error}");
    }
}
