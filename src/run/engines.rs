//! The registry: from a target to an open engine.
//!
//! An engine's tensor type is part of its type, so an engine cannot be a trait object; a
//! visitor runs the same generic code on whichever one a target names. Adding an engine is
//! one line in [`with_engine`].

use super::{EngineKind, Plan, PlantKind, Target};
use crate::engine::candle::CandleEngine;
use crate::engine::reference::ReferenceEngine;
use crate::engine::torch::{Emulation, ModeSettings, TorchEngine};
use crate::engine::{DeviceKind, Engine, EngineError};
use crate::precision::Precision;

/// Code that runs on any engine.
pub trait EngineVisitor {
    /// What it gives.
    type Output;

    /// Runs on `engine`.
    fn visit<E: Engine>(self, engine: E) -> Self::Output;
}

/// What an engine is told before it computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineSettings<'a> {
    /// Deficiencies of the software MPS device; any other device ignores them.
    pub emulation: &'a [Emulation],
    /// Planted: libtorch's TF32 switches are on although the precision says off.
    pub tf32_behind_its_back: bool,
}

impl<'a> EngineSettings<'a> {
    /// What `plan` asks for.
    #[must_use]
    pub fn of(plan: &'a Plan) -> Self {
        let planted = plan.plant.as_ref().map(|plant| &plant.kind);
        Self { emulation: &plan.emulation, tf32_behind_its_back: planted == Some(&PlantKind::Tf32) }
    }
}

/// Opens the engine that `target` names and runs `visitor` on it.
///
/// # Errors
/// [`EngineError::Absent`] if the engine is not built in or its device is not there;
/// whatever the engine says if it cannot be opened.
pub fn with_engine<V: EngineVisitor>(
    target: &Target,
    settings: EngineSettings<'_>,
    visitor: V,
) -> Result<V::Output, EngineError> {
    match target.engine {
        EngineKind::Reference => Ok(visitor.visit(ReferenceEngine::new())),
        EngineKind::Candle => Ok(visitor.visit(CandleEngine::new(&target.device)?)),
        EngineKind::Torch => {
            let engine = TorchEngine::new(&target.device)?;
            let tf32 = target.precision == Precision::Tf32 || settings.tf32_behind_its_back;
            engine.configure(&ModeSettings { tf32, ..ModeSettings::default() })?;
            if target.device.kind == DeviceKind::MpsEmulated && !settings.emulation.is_empty() {
                engine.emulate(settings.emulation)?;
            }
            Ok(visitor.visit(engine))
        }
    }
}

/// Whether a target's engine and device are here, as far as can be told without running
/// anything on them.
#[must_use]
pub fn is_here(target: &Target) -> bool {
    match target.engine {
        EngineKind::Reference => true,
        EngineKind::Candle => CandleEngine::new(&target.device).is_ok(),
        EngineKind::Torch => TorchEngine::presence(&target.device).available,
    }
}
