//! Integration tests: one binary, one module a subject.

mod checkpoint;
mod cli;
mod floors;
mod golden;
mod hostile;
mod recordings;
mod synth;
