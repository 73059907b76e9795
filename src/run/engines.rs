//! The registry: from a target to an open engine.
//!
//! An engine's tensor type is part of its type, so an engine cannot be a trait object; a
//! visitor runs the same generic code on whichever one a target names. Adding an engine is
//! one line in [`with_engine`].

use super::{EngineKind, Target};
use crate::engine::candle::CandleEngine;
use crate::engine::reference::ReferenceEngine;
use crate::engine::torch::{ModeSettings, TorchEngine};
use crate::engine::{Engine, EngineError};
use crate::precision::Precision;

/// Code that runs on any engine.
pub trait EngineVisitor {
    /// What it gives.
    type Output;

    /// Runs on `engine`.
    fn visit<E: Engine>(self, engine: E) -> Self::Output;
}

/// Opens the engine that `target` names and runs `visitor` on it.
///
/// # Errors
/// [`EngineError::Absent`] if the engine is not built in or its device is not there;
/// whatever the engine says if it cannot be opened.
pub fn with_engine<V: EngineVisitor>(target: &Target, visitor: V) -> Result<V::Output, EngineError> {
    match target.engine {
        EngineKind::Reference => Ok(visitor.visit(ReferenceEngine::new())),
        EngineKind::Candle => Ok(visitor.visit(CandleEngine::new(&target.device)?)),
        EngineKind::Torch => {
            let engine = TorchEngine::new(&target.device)?;
            let tf32 = target.precision == Precision::Tf32;
            engine.configure(&ModeSettings { tf32, ..ModeSettings::default() })?;
            Ok(visitor.visit(engine))
        }
    }
}
