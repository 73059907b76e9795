//! Integration tests: one binary, one module a subject.

mod checkpoint;
mod golden;
mod hostile;
mod synth;
