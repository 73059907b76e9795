//! Integration tests: one binary, one module a subject.

mod checkpoint;
mod cli;
mod golden;
mod hostile;
mod synth;
