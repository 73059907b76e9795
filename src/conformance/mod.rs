//! What is wrong with an engine: every operator, on inputs that have made a backend wrong before.
//!
//! Answers: does an engine compute an operator and its gradients as well as a correct engine
//! can? A [`Case`] is an operator with shapes and kinds of values, a [`Trial`] one call of it in
//! one dtype, special in one respect (a layout, another consumer, a NaN); [`sweep`] says which
//! trials there are. [`attempt`] runs one on any [`Engine`](crate::engine::Engine), forward and
//! backward through `sum(op(x) · g)`, and holds it against the f64 reference on the same
//! rounded inputs. The yardstick is the local floor ([`floor`]): what plain rounding does to
//! this call, element by element. Multiples of it come from the caller ([`Bands`]): nothing
//! here knows a policy. Integer inputs and long sums ([`probes`]) need no tolerance and name
//! the mode that a target computes in. A [`Survey`] groups outcomes by operator.
//!
//! Values are drawn by an integer hash; most have at most 8 significant bits, so that every
//! float dtype holds exactly the same numbers, on every platform.

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
mod transform;
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
