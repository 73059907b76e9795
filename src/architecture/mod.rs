//! From `config.json` to a program: one file a family.
//!
//! [`load`] reads the config of a model directory, looks its `model_type` up in the
//! registry and lets the family build the program for a batch size, a sequence length and a
//! mode. Programs are what the Hugging Face class of that family computes, under its key
//! names and module paths; a module's output is captured under the module's path.
//!
//! Adding a family: a file with a `build` function, a line in `registry.rs`, a test against
//! numbers of the original (see `tests/it/golden.rs`).

mod activation;
mod attention;
mod config;
mod gpt2;
mod mlp;
mod registry;
mod resnet;
mod vit;

pub use config::{ArchitectureError, CONFIG_FILE, Config, ConfigFault};
pub use registry::{BuildOptions, Mode, build, families, load};
