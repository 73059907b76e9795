//! Model directories with random weights, of any size, without downloads.
//!
//! [`synth`] writes what a trained model's directory holds (`config.json`, weights in one file
//! or in shards, a small `validation.safetensors`) with weights that leave a model well
//! conditioned and hide nothing: spread so that activations keep their size, biases that
//! are not zero, normalisation weights that are not one. Weights come from the same
//! counter-based generator as batches, so a seed gives the same bytes on every machine; they
//! are drawn and written in pieces, never held as a whole.

mod sizes;
mod weights;
mod write;

pub use sizes::sizes;
pub use write::{SynthError, SynthOptions, Synthesised, synth};
