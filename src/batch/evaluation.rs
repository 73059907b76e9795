//! [`Evaluation`]: all samples of a data file, for metrics.

use std::path::Path;

use super::data::{DataFile, inputs};
use super::{Batch, BatchError};
use crate::program::{InputKind, Program};
use crate::tensor::{Bytes, HostTensor, TensorError};

/// All samples of a data file in pieces of the program's batch size, to be run forward only,
/// by a program in evaluation mode.
#[derive(Clone, Debug)]
pub struct Evaluation {
    data: DataFile,
}

/// One piece.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Inputs and labels. In the last piece the last sample is repeated until the batch is
    /// full: what the program gives for rows beyond `valid` does not count, and neither
    /// does its loss, which is a mean over all rows.
    pub batch: Batch,
    /// Row of the data file that the piece starts with.
    pub first_sample: usize,
    /// Rows that count.
    pub valid: usize,
}

impl Evaluation {
    /// Opens a data file and holds it against the program.
    ///
    /// # Errors
    /// As [`Batch::from_file`]; labels and indices are checked piece by piece.
    pub fn open(program: &Program, path: &Path) -> Result<Self, BatchError> {
        let data = DataFile::open(program, path)?;
        if data.samples == 0 || data.batch == 0 {
            return Err(BatchError::TooFew {
                path: path.to_path_buf(),
                samples: data.samples,
                batch: data.batch,
                first: 0,
            });
        }
        Ok(Self { data })
    }

    /// Samples in the file.
    #[must_use]
    pub const fn samples(&self) -> usize {
        self.data.samples
    }

    /// Pieces, in order. Each is a view of the mapped file; the last may be a padded copy.
    ///
    /// # Errors
    /// An item is an error where a label or an index is out of range.
    pub fn chunks<'a>(
        &'a self,
        program: &'a Program,
    ) -> impl Iterator<Item = Result<Chunk, BatchError>> + 'a {
        (0..self.data.samples).step_by(self.data.batch.max(1)).map(move |first| self.chunk(program, first))
    }

    fn chunk(&self, program: &Program, first: usize) -> Result<Chunk, BatchError> {
        let valid = self.data.batch.min(self.data.samples - first);
        // A program in evaluation mode has no masks; one in training mode gets those of seed 0.
        let mut batch = Batch::drawn(program, 0, &[InputKind::Mask])?;
        for input in inputs(program) {
            let rows = self.data.rows(program, input, first..first + valid)?;
            let full = repeat_last_row(&rows, self.data.batch)
                .map_err(|source| BatchError::Tensor { name: input.name.clone(), source })?;
            batch.tensors.insert(input.name.clone(), full);
        }
        Ok(Chunk { batch, first_sample: first, valid })
    }
}

fn repeat_last_row(tensor: &HostTensor, rows: usize) -> Result<HostTensor, TensorError> {
    let (Some(have), bytes) = (tensor.shape().first().copied(), tensor.bytes()) else {
        return Ok(tensor.clone());
    };
    if have == 0 || have >= rows {
        return Ok(tensor.clone());
    }
    let row = bytes.get(bytes.len() - bytes.len() / have..).unwrap_or_default();
    let mut full = bytes.to_vec();
    for _ in have..rows {
        full.extend_from_slice(row);
    }
    let shape = std::iter::once(rows).chain(tensor.shape().iter().skip(1).copied()).collect();
    HostTensor::new(tensor.dtype(), shape, Bytes::Owned(full.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::architecture::{BuildOptions, Config, build};
    use crate::numerics::DType;
    use crate::tensor::safetensors::write;

    #[test]
    fn every_sample_counts_once_and_the_last_piece_is_filled_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("validation.safetensors");
        let values: Vec<f64> = (0..10).map(f64::from).collect();
        let input = HostTensor::from_f64(DType::F32, vec![5, 2], &values).unwrap();
        let labels = HostTensor::from_i64(vec![5], &[0, 1, 2, 0, 1]).unwrap();
        write(&path, &[("input", &input), ("labels", &labels)], &BTreeMap::new()).unwrap();
        let config = Config::parse(br#"{"model_type": "mlp", "layer_sizes": [2, 3]}"#).unwrap();
        let program = build(&config, &BuildOptions { batch: 2, ..BuildOptions::default() }).unwrap();
        let evaluation = Evaluation::open(&program, &path).unwrap();
        let chunks: Vec<_> = evaluation.chunks(&program).collect::<Result<_, _>>().unwrap();
        let valid: Vec<_> = chunks.iter().map(|c| (c.first_sample, c.valid)).collect();
        assert_eq!(valid, [(0, 2), (2, 2), (4, 1)]);
        let last = &chunks[2].batch;
        assert_eq!(last.get("input").unwrap().to_f64(), [8.0, 9.0, 8.0, 9.0]);
        assert_eq!(last.get("labels").unwrap().to_i64(), [1, 1]);
    }
}
