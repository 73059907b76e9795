//! What can be wrong with a batch.

use std::path::PathBuf;

use crate::numerics::DType;
use crate::tensor::TensorError;
use crate::tensor::safetensors::FileError;

/// A batch could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The data file is not sound.
    #[error(transparent)]
    File(#[from] FileError),
    /// The data file lacks an input of the program.
    #[error("`{path}` holds no tensor `{name}`; it needs {needed}")]
    MissingInput {
        /// The data file.
        path: PathBuf,
        /// Name of the input.
        name: String,
        /// Names of everything that the program needs from the file.
        needed: String,
    },
    /// A tensor of the data file has another shape.
    #[error(
        "`{path}`: `{name}` has shape {found:?}, the model needs {expected}; prepare the data for this model"
    )]
    Shape {
        /// The data file.
        path: PathBuf,
        /// Name of the input.
        name: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape that is needed, in words.
        expected: String,
    },
    /// A tensor of the data file has another class of dtype.
    #[error("`{path}`: `{name}` is {found}, the model needs {expected}; convert it")]
    DType {
        /// The data file.
        path: PathBuf,
        /// Name of the input.
        name: String,
        /// Dtype in the file.
        found: DType,
        /// Dtype that is needed, in words.
        expected: &'static str,
    },
    /// Tensors of the data file have different numbers of samples.
    #[error(
        "`{path}`: `{name}` holds {found} samples, `{other}` holds {expected}; \
         give every tensor one row a sample"
    )]
    Samples {
        /// The data file.
        path: PathBuf,
        /// One input.
        name: String,
        /// Its number of samples.
        found: usize,
        /// Another input.
        other: String,
        /// Its number of samples.
        expected: usize,
    },
    /// The data file ends before the batch does.
    #[error(
        "`{path}` holds {samples} samples; a batch of {batch} from sample {first} on needs more; \
         ask for a smaller batch or an earlier first sample"
    )]
    TooFew {
        /// The data file.
        path: PathBuf,
        /// Samples in the file.
        samples: usize,
        /// Batch size of the program.
        batch: usize,
        /// First sample asked for.
        first: usize,
    },
    /// A label or an index is out of range.
    #[error(
        "`{path}`: `{name}` holds {value} at sample {sample}, the model has values from 0 to {last}; \
         correct the data, or use the model that belongs to it"
    )]
    OutOfRange {
        /// The data file.
        path: PathBuf,
        /// Name of the input.
        name: String,
        /// The value.
        value: i64,
        /// Row of the file in which it stands.
        sample: usize,
        /// Largest legal value.
        last: usize,
    },
    /// An integer input without a range.
    #[error("the input `{0}` takes integers but states no upper bound; set `below` in the program")]
    Unbounded(String),
    /// The program takes nothing from a data file.
    #[error("the program has no input that a data file could give; run it from a seed")]
    NoInputs,
    /// A tensor could not be made.
    #[error("cannot make `{name}`: {source}; use a smaller batch")]
    Tensor {
        /// Name of the input.
        name: String,
        /// Why.
        source: TensorError,
    },
}
