//! The batch: inputs, labels and masks, made once on the host.
//!
//! Devices have generators of their own, and no two agree: so nothing random is ever drawn
//! on a device. [`Batch::from_seed`] draws everything from a counter-based generator
//! ([`Stream`]): the value of an element depends on the seed, the name of its tensor and its
//! index, not on the order or the number of threads, and it is made by integer arithmetic
//! alone, so that it has the same bits on every machine. [`Batch::from_file`] takes inputs and
//! labels from a data file; masks come from the seed in either case.
//!
//! Drawn inputs have at most 8 significant bits: they are exact in every float dtype, so that
//! all precisions compute on the same real numbers.

mod data;
mod draw;
mod error;
mod evaluation;
mod philox;
mod seeded;

pub use draw::Stream;
pub use error::BatchError;
pub use evaluation::{Chunk, Evaluation};
pub use philox::philox4x32_10;
pub use seeded::Batch;

/// Name of the labelled data file of a model directory.
pub const DATA_FILE: &str = "validation.safetensors";
