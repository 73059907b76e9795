//! Faults planted on purpose, so that every check can be seen to fail.
//!
//! A [`Plant`] changes one thing about one target. Faults of values change the computation
//! itself, on the engine's own tensors: a changed activation flows on into the loss and the
//! gradients, as a real fault would. Faults of delivery change what is handed over. Faults
//! of the process end it the way drivers do. A recording with a planted fault says so and is
//! no evidence of anything.

mod delivery;
mod kind;
mod operator;

pub(super) use delivery::deliver;
pub use kind::{Plant, PlantError, PlantKind};
pub(super) use operator::Planted;
