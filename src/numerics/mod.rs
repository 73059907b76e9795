//! What is known about number formats and about the error of operators.
//!
//! Answers: how large is one rounding step of a dtype, how far apart are two values in
//! units in the last place, and how large an error does plain rounding cause in one
//! operator. Nothing here reads a file, runs an engine or knows a tolerance.

mod dtype;
mod error_model;
mod order;
mod ulp;

pub use dtype::{DType, UnknownDType};
pub use error_model::{ErrorModel, FloatFormat, InputRounding, Role};
pub use order::{max_nan, min_nan};
pub use ulp::{ulp_distance, ulp_size};
