//! Policy tables to bands: the only source of thresholds.
//!
//! A policy is a TOML file; the built-in one is `tolerances/default.toml`, a user's own
//! either stands alone or overlays it (`extends = "default"`). For every quantity the last
//! matching rule sets the [`Band`], and the band carries the rule's identifier, file and
//! line, its reason and the source of its number, so that every number on screen leads to a
//! line of a file. The losing option, the most specific rule wins, needs an order of
//! specificity over four columns that nobody remembers; an order of lines is visible.
//!
//! Reading is strict: an unknown key, a rule without a reason, a band that only bit-equal
//! values could meet or that the signal itself would fit into is refused with file and
//! line. All mistakes of a file are reported at once.
//!
//! Nothing here reads a recording or runs an engine.

mod band;
mod check;
mod error;
mod format;
mod policy;
mod quantile;
mod read;
mod rule;

#[cfg(test)]
mod tests;

pub use band::{Band, QuantityDescription, bands_for};
pub use error::{PolicyError, PolicyErrors, PolicyProblem};
pub use format::Formats;
pub use policy::{AllowedFallback, Placement, PlacementMode, Policy, RunSettings};
pub use quantile::{f_quantile, widening};
pub use rule::{Place, Quantity, Rule, Scope, Unit};
