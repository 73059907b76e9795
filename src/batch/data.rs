//! A batch from a data file.

use std::ops::Range;
use std::path::Path;

use super::{Batch, BatchError};
use crate::numerics::DType;
use crate::program::{InputKind, Op, Program, ProgramInput};
use crate::tensor::HostTensor;
use crate::tensor::safetensors::SafetensorsFile;

impl Batch {
    /// Takes inputs and labels of `program` from rows `first_sample ..` of a safetensors file
    /// (one row a sample, named as the program's inputs), views of the mapped file; masks
    /// come from `seed`.
    ///
    /// # Errors
    /// If the file is not sound, lacks an input, holds one in another shape or dtype, ends
    /// too early, or holds a label or index out of range (in the rows that are taken).
    pub fn from_file(
        program: &Program,
        path: &Path,
        seed: u64,
        first_sample: usize,
    ) -> Result<Self, BatchError> {
        DataFile::open(program, path)?.batch(program, seed, first_sample)
    }
}

/// A data file that fits a program.
#[derive(Clone, Debug)]
pub(super) struct DataFile {
    file: SafetensorsFile,
    /// Rows of every tensor.
    pub samples: usize,
    /// Rows of one batch.
    pub batch: usize,
}

impl DataFile {
    /// Opens a file and holds it against the program.
    pub fn open(program: &Program, path: &Path) -> Result<Self, BatchError> {
        let file = SafetensorsFile::open(path)?;
        let mut samples: Option<(&str, usize)> = None;
        let mut batch = None;
        for input in inputs(program) {
            let path = || path.to_path_buf();
            let value = program.value(input.value);
            let Some(entry) = file.entry(&input.name) else {
                let needed: Vec<_> = inputs(program).map(|i| format!("`{}`", i.name)).collect();
                let (name, needed) = (input.name.clone(), needed.join(", "));
                return Err(BatchError::MissingInput { path: path(), name, needed });
            };
            let fits = value.shape.len() == entry.shape.len() && value.shape.get(1..) == entry.shape.get(1..);
            let (Some(rows), Some(found), true) = (value.shape.first(), entry.shape.first(), fits) else {
                let rest: Vec<_> = value.shape.iter().skip(1).map(|d| format!(", {d}")).collect();
                return Err(BatchError::Shape {
                    path: path(),
                    name: input.name.clone(),
                    found: entry.shape.clone(),
                    expected: format!("[samples{}]", rest.concat()),
                });
            };
            if entry.dtype != value.dtype && !(entry.dtype.is_float() && value.dtype.is_float()) {
                let expected = match value.dtype {
                    DType::I64 => "i64",
                    DType::U8 => "u8",
                    _ => "floating point",
                };
                let (name, found) = (input.name.clone(), entry.dtype);
                return Err(BatchError::DType { path: path(), name, found, expected });
            }
            let (other, expected) = *samples.get_or_insert((&input.name, *found));
            if *found != expected {
                let (name, other) = (input.name.clone(), other.to_owned());
                return Err(BatchError::Samples { path: path(), name, found: *found, other, expected });
            }
            batch.get_or_insert(*rows);
        }
        let (Some((_, samples)), Some(batch)) = (samples, batch) else {
            return Err(BatchError::NoInputs);
        };
        Ok(Self { file, samples, batch })
    }

    /// The batch that starts at row `first`.
    pub fn batch(&self, program: &Program, seed: u64, first: usize) -> Result<Batch, BatchError> {
        let end = first.checked_add(self.batch).filter(|end| *end <= self.samples);
        let Some(end) = end else { return Err(self.too_few(first)) };
        let mut batch = Batch::drawn(program, seed, &[InputKind::Mask])?;
        for input in inputs(program) {
            let tensor = self.rows(program, input, first..end)?;
            batch.tensors.insert(input.name.clone(), tensor);
        }
        Ok(batch)
    }

    /// Rows of one input, with labels and indices checked.
    pub fn rows(
        &self,
        program: &Program,
        input: &ProgramInput,
        rows: Range<usize>,
    ) -> Result<HostTensor, BatchError> {
        let tensor = self.file.rows(&input.name, rows.clone()).ok_or_else(|| self.too_few(rows.start))?;
        let Some(below) = input.below else { return Ok(tensor) };
        let per_sample = (tensor.elements() / rows.len().max(1)).max(1);
        let last = below.saturating_sub(1);
        let limit = i64::try_from(below).unwrap_or(i64::MAX);
        let ignored = if input.kind == InputKind::Label { ignored_labels(program) } else { Vec::new() };
        let legal = |value: &i64| (0..limit).contains(value) || ignored.contains(value);
        match tensor.to_i64().into_iter().enumerate().find(|(_, value)| !legal(value)) {
            None => Ok(tensor),
            Some((i, value)) => Err(BatchError::OutOfRange {
                path: self.file.path().to_path_buf(),
                name: input.name.clone(),
                value,
                sample: rows.start + i / per_sample,
                last,
            }),
        }
    }

    fn too_few(&self, first: usize) -> BatchError {
        let (path, samples, batch) = (self.file.path().to_path_buf(), self.samples, self.batch);
        BatchError::TooFew { path, samples, batch, first }
    }
}

/// What a data file gives: inputs and labels, no masks.
pub(super) fn inputs(program: &Program) -> impl Iterator<Item = &ProgramInput> {
    program.inputs.iter().filter(|input| matches!(input.kind, InputKind::Batch | InputKind::Label))
}

/// Labels that the program's losses leave out.
fn ignored_labels(program: &Program) -> Vec<i64> {
    let ignored = |op: &Op| match op {
        Op::CrossEntropy { ignore_index, .. } | Op::NllLoss { ignore_index, .. } => Some(*ignore_index),
        _ => None,
    };
    program.nodes.iter().filter_map(|node| ignored(&node.op)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;
    use crate::architecture::{BuildOptions, Config, build};
    use crate::tensor::safetensors::write;

    fn program() -> Program {
        let config = Config::parse(br#"{"model_type": "mlp", "layer_sizes": [2, 3]}"#).unwrap();
        build(&config, &BuildOptions { batch: 2, ..BuildOptions::default() }).unwrap()
    }

    /// A data file of four samples, changed by `change`.
    fn data(change: impl FnOnce(&mut BTreeMap<&'static str, HostTensor>)) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.safetensors");
        let values: Vec<f64> = (0..8).map(f64::from).collect();
        let mut tensors = BTreeMap::from([
            ("input", HostTensor::from_f64(DType::F32, vec![4, 2], &values).unwrap()),
            ("labels", HostTensor::from_i64(vec![4], &[0, 1, 2, -100]).unwrap()),
        ]);
        change(&mut tensors);
        write(&path, &tensors.iter().map(|(n, t)| (*n, t)).collect::<Vec<_>>(), &BTreeMap::new()).unwrap();
        (dir, path)
    }

    fn fails(change: impl FnOnce(&mut BTreeMap<&'static str, HostTensor>)) -> BatchError {
        let (_dir, path) = data(change);
        Batch::from_file(&program(), &path, 0, 0).unwrap_err()
    }

    #[test]
    fn rows_are_taken_from_the_first_sample_on() {
        let (_dir, path) = data(|_| ());
        let batch = Batch::from_file(&program(), &path, 0, 1).unwrap();
        assert_eq!(batch.get("input").unwrap().to_f64(), [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(batch.get("labels").unwrap().to_i64(), [1, 2]);
    }

    #[test]
    fn an_ignored_label_is_legal_and_any_other_out_of_range_is_named() {
        let (_dir, path) = data(|_| ());
        assert!(Batch::from_file(&program(), &path, 0, 2).is_ok());
        for wrong in [3, -1, i64::MIN] {
            let labels = HostTensor::from_i64(vec![4], &[0, wrong, 0, 0]).unwrap();
            let error = fails(|t| drop(t.insert("labels", labels)));
            assert!(
                matches!(&error, BatchError::OutOfRange { name, value, sample: 1, last: 2, .. } if name == "labels" && *value == wrong),
                "{error}"
            );
        }
    }

    #[test]
    fn a_missing_input_lists_what_is_needed() {
        let message = fails(|t| drop(t.remove("input"))).to_string();
        assert!(message.ends_with("holds no tensor `input`; it needs `input`, `labels`"), "{message}");
    }

    #[test]
    fn an_input_of_the_wrong_shape_is_refused() {
        let wide = HostTensor::from_f64(DType::F32, vec![4, 3], &[0.0; 12]).unwrap();
        let message = fails(|t| drop(t.insert("input", wide))).to_string();
        assert!(message.contains("`input` has shape [4, 3], the model needs [samples, 2]"), "{message}");
        let scalar = HostTensor::from_i64(vec![], &[0]).unwrap();
        assert!(matches!(fails(|t| drop(t.insert("labels", scalar))), BatchError::Shape { .. }));
    }

    #[test]
    fn an_input_of_the_wrong_dtype_is_refused() {
        let integers = HostTensor::from_i64(vec![4, 2], &[0; 8]).unwrap();
        let message = fails(|t| drop(t.insert("input", integers))).to_string();
        assert!(message.contains("`input` is i64, the model needs floating point"), "{message}");
        let floats = HostTensor::from_f64(DType::F32, vec![4], &[0.0; 4]).unwrap();
        assert!(matches!(fails(|t| drop(t.insert("labels", floats))), BatchError::DType { .. }));
    }

    #[test]
    fn tensors_of_different_length_are_refused() {
        let labels = HostTensor::from_i64(vec![3], &[0; 3]).unwrap();
        assert!(matches!(
            fails(|t| drop(t.insert("labels", labels))),
            BatchError::Samples { found: 3, expected: 4, .. }
        ));
    }

    #[test]
    fn a_file_that_ends_too_early_is_refused() {
        let (_dir, path) = data(|_| ());
        for first in [3, 4, usize::MAX] {
            let error = Batch::from_file(&program(), &path, 0, first).unwrap_err();
            assert!(matches!(error, BatchError::TooFew { samples: 4, batch: 2, .. }), "{error}");
        }
    }
}
