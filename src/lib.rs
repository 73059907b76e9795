//! Cross-backend numerical parity checker.
//!
//! One safetensors checkpoint, the identical seeded forward and backward pass on several
//! engines and devices, one difference table. Modules stand in the order of the flow; each
//! may use those above it, none those below:
//!
//! checkpoint, architecture, batch → program → precision → engine → recording →
//! compare ← tolerance → verdict → report.

pub mod numerics;
pub mod tensor;

pub mod checkpoint;
pub mod program;

pub mod architecture;
pub mod batch;
pub mod precision;
pub mod synth;

pub mod trace;

pub mod engine;

pub mod conformance;

pub mod environment;
pub mod recording;
pub mod run;

pub mod compare;
pub mod tolerance;

pub mod verdict;

pub mod report;

pub mod cli;
