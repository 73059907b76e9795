//! The difference table on screen and in files: one model, one renderer a file.
//!
//! A renderer takes a [`crate::verdict::DifferenceTable`] and gives text; it decides
//! nothing. Whoever calls it prints or writes.

mod format;
mod json;
mod markdown;
mod terminal;
mod trace;

#[cfg(test)]
mod tests;

pub use json::render as json;
pub use markdown::render as markdown;
pub use terminal::{Options as TerminalOptions, render as terminal};
pub use trace::{TraceReport, json as trace_json, render as trace};
