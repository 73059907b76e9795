//! Small cases for every operator: attributes, input shapes and kinds of values.
//!
//! Answers: on which inputs is an operator tried, whatever the engine. A [`Case`] knows
//! neither engine nor tolerance; it gives a one-node [`Program`](crate::program::Program)
//! whose loss weighs every result element differently, and the bytes of its inputs. Values
//! are drawn by an integer hash and have at most 8 significant bits, so that every float
//! dtype holds exactly the same numbers, on every platform.

mod attempt;
mod case;
mod cases;
pub mod floor;
mod judge;
mod known;
mod layout;
pub mod probes;
mod survey;
pub mod sweep;
mod trial;

#[cfg(test)]
mod tests;

pub use attempt::{Judge, Outcome, Sighting, Status, attempt};
pub use case::{Case, CaseInput, Fill};
pub use cases::cases;
pub use judge::{Bands, Fault, Judgement, Multiples, judge};
pub use known::{KnownDefects, KnownError};
pub use layout::{Layout, Placed};
pub use survey::{Cell, Defect, KnownAs, OperatorRow, Survey, Tally};
pub use trial::{Lane, Prepared, Trial, TrialError, Variant};
