//! `tensors.safetensors`, written tensor by tensor.
//!
//! The format's header comes first and names every tensor, but a recording does not know
//! all of them before it is complete. So room for the header is reserved and filled in at
//! the end; the format allows trailing blanks in the header. If the room was too small the
//! data are moved once. (`tensor::safetensors::Writer` wants every tensor announced first.)

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::numerics::DType;
use crate::tensor::HostTensor;

/// Room for the header of a small recording, in bytes; a multiple of 8.
const RESERVED: usize = 16 << 10;

/// A tensor file being written.
#[derive(Debug)]
pub(super) struct TensorWriter {
    out: BufWriter<File>,
    reserved: usize,
    written: u64,
    entries: BTreeMap<String, (DType, Vec<usize>, u64, u64)>,
}

impl TensorWriter {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&vec![b' '; 8 + RESERVED])?;
        Ok(Self { out, reserved: RESERVED, written: 0, entries: BTreeMap::new() })
    }

    /// Appends one tensor.
    pub(super) fn append(&mut self, name: &str, tensor: &HostTensor) -> io::Result<()> {
        let start = self.written;
        self.out.write_all(tensor.bytes())?;
        self.written += tensor.bytes().len() as u64;
        let entry = (tensor.dtype(), tensor.shape().to_vec(), start, self.written);
        self.entries.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Writes the header and brings everything to the disk.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let mut header = self.header();
        let need = header.len().next_multiple_of(8);
        self.out.flush()?;
        let mut file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        if need > self.reserved {
            move_data(&mut file, self.reserved, need, self.written)?;
            self.reserved = need;
        }
        header.resize(self.reserved, b' ');
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&(self.reserved as u64).to_le_bytes())?;
        file.write_all(&header)?;
        file.sync_all()
    }

    fn header(&self) -> Vec<u8> {
        let entries: serde_json::Map<String, serde_json::Value> = self
            .entries
            .iter()
            .map(|(name, (dtype, shape, start, end))| {
                let dtype = dtype.name().to_ascii_uppercase();
                (
                    name.clone(),
                    serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]}),
                )
            })
            .collect();
        serde_json::Value::Object(entries).to_string().into_bytes()
    }
}

/// Moves `length` bytes that start after a header of `from` bytes to after one of `to`
/// bytes (`to` > `from`), from the end, so that nothing is overwritten before it is read.
fn move_data(file: &mut File, from: usize, to: usize, length: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut left = length;
    while left > 0 {
        let take = left.min(buffer.len() as u64);
        left -= take;
        let part = buffer.get_mut(..usize::try_from(take).unwrap_or(0)).unwrap_or_default();
        file.seek(SeekFrom::Start(8 + from as u64 + left))?;
        file.read_exact(part)?;
        file.seek(SeekFrom::Start(8 + to as u64 + left))?;
        file.write_all(part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(count: usize) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.safetensors");
        let mut writer = TensorWriter::create(&path).unwrap();
        for i in 0..count {
            let t = HostTensor::from_f64(DType::F32, vec![3], &[i as f64, 0.5, -1.0]).unwrap();
            writer.append(&format!("activation/layer.{i}"), &t).unwrap();
        }
        writer.finish().unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn other_readers_of_the_format_read_what_is_written() {
        for count in [0, 1, 3, 1000] {
            let bytes = write(count);
            let file = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(file.len(), count);
            for i in 0..count {
                let view = file.tensor(&format!("activation/layer.{i}")).unwrap();
                assert_eq!(view.data()[..4], (i as f32).to_le_bytes());
            }
        }
    }

    #[test]
    fn a_header_that_outgrows_its_room_moves_the_data() {
        let bytes = write(1000);
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(usize::try_from(header).unwrap() > RESERVED);
    }
}
