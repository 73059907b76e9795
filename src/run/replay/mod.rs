//! Isolated replay: every operator of a program alone, on the reference's own values.
//!
//! Answers: which operator is wrong? In a pass, what one operator does wrong reaches all
//! that come after it; end to end, a deviation is seen where it is large enough and not
//! where it arises. Here each node gets the inputs and the incoming gradients that the
//! reference has at that place ([`ReferenceValues`]), rounded to the program's dtypes, so
//! that nothing is handed on: what deviates is the node's own. Backward is the gradient of
//! Σ op(x)·g, by the engine's own differentiation.
//!
//! What a node must give, and how far rounding alone may move it, comes from
//! [`floor::local`](crate::conformance::floor::local), on the same rounded inputs: no
//! replicas, no propagation. A program whose nodes are all within and whose pass is not has
//! a fault of composition: wiring, a stale buffer, state between calls.
//!
//! The losing option, bisection with whole passes, needs a pass for each step and finds one
//! fault at a time.

mod node;
mod values;

#[cfg(test)]
mod tests;

pub use node::{Deviation, Direction, Part, Replayed, replay, replay_node};
pub use values::ReferenceValues;

use crate::conformance::{Bands, floor::Rounding};

/// By what a replay is judged.
#[derive(Clone, Copy)]
pub struct ReplayJudge<'a> {
    /// Rounding of a correct engine in this precision.
    pub rounding: Rounding<'a>,
    /// Multiples of the local floor.
    pub bands: &'a dyn Bands,
}
