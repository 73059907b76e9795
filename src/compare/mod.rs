//! How far is a candidate from the reference, and was everything looked at?
//!
//! Pure functions over tensors in memory and over lists of names: nothing here reads a
//! file, runs an engine or knows a tolerance. Three questions, each in a module:
//!
//! * [`statistics`]: one pass over two tensors that measures everything a verdict needs;
//! * [`alignment`]: which quantities of two recordings belong together, and what was left
//!   out (expected, compared, skipped, missing and unchecked are counted apart);
//! * [`metrics`]: top-1 and top-5, and whether a flipped prediction is explained by the
//!   margin of the reference.
//!
//! The reference is always named in a struct ([`Pair`]), never the second of two like
//! arguments. A difference of shape or of dtype class is a verdict ([`Structural`]), not
//! an error: an error would mean that no verdict was possible.

pub mod alignment;
pub mod metrics;
pub mod statistics;

mod gradient;
mod view;

#[cfg(test)]
mod accidental_passes;

pub use gradient::{GradientDifference, GradientState};
pub use statistics::Statistics;
pub use view::{Comparison, Pair, Structural, TensorView};
