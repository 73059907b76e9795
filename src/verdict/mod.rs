//! From deviations, bands, floors and states to verdicts.
//!
//! A quantity is judged by the ratio of its deviation to the noise that rounding alone
//! would cause there. Everything that keeps a comparison from being one (missing, skipped,
//! severed, void) is a verdict of its own and never counts as agreement.

mod about;
mod assemble;
mod attribution;
mod conclusion;
mod finding;
mod judge;
mod metrics;
mod placement;
mod rules;
mod table;

pub use assemble::{AssembleError, Rules, Sides, assemble};
pub use attribution::{Attribution, Factor, attribute};
pub use conclusion::{Conclusion, Demands, conclude, exit};
pub use finding::{AppliedBand, Cause, Counts, Finding, Verdict, WorstElement, finding_id};
pub use judge::{Deviation, Judgement, NoiseFloor, judge};
pub use rules::{PolicyRules, describe};
pub use table::{
    DeviceSummary, DifferenceTable, PolicySummary, SubjectSummary, TABLE_SCHEMA_VERSION, TargetStatus,
    TargetSummary,
};
