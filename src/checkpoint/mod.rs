//! The weights: what lies in a model directory, and whether it is what the program needs.
//!
//! [`Checkpoint::open`] takes `model.safetensors`, or the shards that
//! `model.safetensors.index.json` lists, maps them and settles everything that concerns the
//! files alone. [`Checkpoint::check`] holds the keys against a program and answers with all
//! that is missing, unexpected or misshaped at once: the first of fifty wrong keys says less
//! than the list. Nothing is read into memory; tensors are views of the mapped files.
//!
//! What is odd but not wrong (NaN in a weight, a stored key that nobody uses) is a
//! [`Warning`]: returned, never printed and never dropped here.

mod check;
mod error;
mod hash;
mod index;
mod open;
mod scan;

pub use check::Warning;
pub use error::{CheckpointError, KeyProblem, KeyProblems};
pub use open::{Checkpoint, INDEX_FILE, MODEL_FILE, Shard};
