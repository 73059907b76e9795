//! The names of this module in a program that was built without libtorch.

use std::convert::Infallible;

use super::{Emulation, ModeSettings};
use crate::engine::canary::Presence;
use crate::engine::{BackwardRequest, Call, DeviceSpec, Engine, EngineError, EngineInfo, Leaf, Support};
use crate::numerics::DType;
use crate::program::{Op, Value};
use crate::tensor::HostTensor;
use crate::trace::Phase;

const REASON: &str = "this program was built without libtorch; run scripts/setup-libtorch, then build it \
                      with --features torch";

/// libtorch, which this program was built without: no value of this type exists.
#[derive(Clone, Copy, Debug)]
pub struct TorchEngine(Infallible);

/// A tensor of it.
#[derive(Clone, Copy, Debug)]
pub struct TorchTensor(Infallible);

impl TorchEngine {
    /// # Errors
    /// Always [`EngineError::Absent`], with what to do.
    pub fn new(spec: &DeviceSpec) -> Result<Self, EngineError> {
        Err(EngineError::Absent { target: format!("torch:{spec}"), built: false, reason: REASON.to_owned() })
    }

    /// Not built.
    #[must_use]
    pub fn presence(_spec: &DeviceSpec) -> Presence {
        Presence::not_built(REASON.to_owned())
    }

    /// # Errors
    /// Cannot be called.
    pub const fn configure(&self, _settings: &ModeSettings) -> Result<(), EngineError> {
        match self.0 {}
    }

    /// # Errors
    /// Cannot be called.
    pub const fn emulate(&self, _emulations: &[Emulation]) -> Result<(), EngineError> {
        match self.0 {}
    }
}

impl Engine for TorchEngine {
    type Tensor = TorchTensor;

    fn info(&self) -> EngineInfo {
        match self.0 {}
    }

    fn supports(&self, _op: &Op, _dtype: DType, _types: &[&Value], _phase: Phase) -> Support {
        match self.0 {}
    }

    fn upload(&self, _host: &HostTensor, _leaf: Leaf) -> Result<TorchTensor, EngineError> {
        match self.0 {}
    }

    fn download(&self, tensor: &TorchTensor) -> Result<HostTensor, EngineError> {
        match tensor.0 {}
    }

    fn apply(&self, _call: &Call<'_>, _inputs: &[&TorchTensor]) -> Result<Vec<TorchTensor>, EngineError> {
        match self.0 {}
    }

    fn backward(
        &self,
        _request: &BackwardRequest<'_, TorchTensor>,
    ) -> Result<Vec<Option<TorchTensor>>, EngineError> {
        match self.0 {}
    }

    fn device_of(&self, tensor: &TorchTensor) -> String {
        match tensor.0 {}
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_libtorch_every_device_is_absent_and_the_reason_says_what_to_do() {
        let message = TorchEngine::new(&DeviceSpec::CPU).unwrap_err().to_string();
        assert!(
            message.contains("scripts/setup-libtorch") && message.ends_with("--features torch"),
            "{message}"
        );
        assert!(!TorchEngine::presence(&DeviceSpec::CPU).built);
    }
}
