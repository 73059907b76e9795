//! libtorch as an engine: cpu, cuda, mps and, for tests, a software mps, all through one
//! adapter over tch.
//!
//! What runs is what users of PyTorch run: every operator of the program set maps to the
//! `ATen` function of the same name (`ops/`), gradients are libtorch's autograd, and the
//! switches that change numbers (TF32, reduced-precision reductions) are set explicitly and
//! read back (`modes`). Operator events come from libtorch's dispatcher (`events`), never
//! from the interpreter: only the dispatcher sees what happens inside an operator, in
//! autograd's threads, and when an operator is quietly sent to the CPU.
//!
//! Everything `unsafe` is in `native/`. Without the feature `torch` the same names exist and
//! every device is absent, so that callers need no `cfg`.

mod emulate;
mod modes;

#[cfg(feature = "torch")]
mod engine;
#[cfg(feature = "torch")]
mod events;
#[cfg(feature = "torch")]
mod kernels;
#[cfg(feature = "torch")]
mod open;
#[cfg(feature = "torch")]
mod ops;
#[cfg(feature = "torch")]
mod support;
#[cfg(feature = "torch")]
mod tensor;

#[cfg(feature = "torch")]
#[expect(missing_docs, reason = "fields carry the names that libtorch and the C++ beside them give")]
pub mod native;

#[cfg(not(feature = "torch"))]
mod unbuilt;

#[cfg(all(test, feature = "torch"))]
mod tests;

/// Folder of the libtorch that this program was linked with.
#[cfg(feature = "torch")]
pub const LINKED_LIBTORCH: &str = env!("PARITY_LIBTORCH_PATH");

pub use emulate::{Emulation, EmulationError};
pub use modes::{ENVIRONMENT, ModeSettings};

#[cfg(feature = "torch")]
pub use engine::TorchEngine;
#[cfg(feature = "torch")]
pub use tensor::TorchTensor;

#[cfg(not(feature = "torch"))]
pub use unbuilt::{TorchEngine, TorchTensor};
