//! What is computed: a backend-neutral graph of tensor operators.
//!
//! A [`Program`] is in single-assignment form: every value is made once, by a program
//! input or by one node, and nodes stand in an order in which they can be executed.
//! Operators carry `ATen`'s core names and semantics; high-level operators stay whole
//! (layer norm is one node), because an engine is checked on what its users call. The
//! losing option, a small primitive set with decompositions, would compare engines on
//! compositions that nobody runs.
//!
//! Nothing here knows an engine. Floating-point values of a program as an architecture
//! makes it are nominally `F32`; `precision` rewrites them.

mod builder;
mod dim;
mod graph;
mod infer;
mod json;
mod op;
mod role;

pub use builder::{BuildError, Builder};
pub use dim::{DimError, broadcast, normalize_dim};
pub use graph::{Capture, InputKind, Node, Outputs, Program, ProgramError, ProgramInput, Value, ValueId};
pub(crate) use infer::slice_bounds;
pub use infer::{InferError, infer};
pub use json::{ProgramFileError, SCHEMA_VERSION};
pub use op::{Gelu, LossReduction, Op, OpKind};
