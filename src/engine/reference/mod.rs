//! The reference: every operator in f64, forward and reverse mode, on ndarray.
//!
//! Answers: what is the exact result of a program, as far as f64 can tell, and how far may
//! plain rounding in narrower formats move each quantity away from it. Straightforward on
//! purpose and independent of every other engine: nothing here comes from them, so that an
//! agreement says something about both sides.
//!
//! * Values are shared arrays (`tensor`); float dtypes of a program do not matter to the
//!   arithmetic, only to the noise. Semantics are those of `ATen`, NaN and ties included.
//! * Each operator stands in one place, its forward computation beside its
//!   vector-Jacobian product (`ops`). The product is a closure over exactly the values it
//!   needs; `tape` links the closures and walks them from the loss. The losing option, one
//!   global tape, would keep every pass alive until somebody clears it.
//! * Long sums are pairwise (`sum`), and work is split by shape alone, never by the
//!   number of threads: results are bit-equal on any machine with the same instruction set.
//! * `noise` perturbs results and cotangents by the error that an operator is expected to
//!   make in given formats. Replicas of such a run are the predicted noise floor.

mod applied;
mod elementwise;
mod engine;
mod gemm;
mod noise;
mod ops;
mod sum;
mod tape;
mod tensor;

#[cfg(test)]
mod tests;

pub use engine::ReferenceEngine;
pub use noise::{Formats, NoiseSpec};
pub use tensor::Tensor;
