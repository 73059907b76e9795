//! [`Hooked`]: an engine with something in between, for progress and for planted faults.
//!
//! The interpreter knows nothing of it. A hook sees every call that goes to the engine and
//! may change what comes back, on the engine's own tensors.

use crate::engine::{BackwardRequest, Call, Engine, EngineError, EngineInfo, KernelEvidence, Leaf, Support};
use crate::numerics::DType;
use crate::program::{Op, Value};
use crate::tensor::HostTensor;
use crate::trace::{OperatorEvent, Phase};

/// What stands between interpreter and engine. By default nothing.
pub(super) trait Hook<E: Engine> {
    /// Before a node runs (`None`: before backward).
    fn mark(&self, _phase: Phase, _node: Option<usize>) {}

    /// One operator.
    ///
    /// # Errors
    /// Those of the engine.
    fn apply(
        &self,
        engine: &E,
        call: &Call<'_>,
        inputs: &[&E::Tensor],
    ) -> Result<Vec<E::Tensor>, EngineError> {
        engine.apply(call, inputs)
    }

    /// The backward pass.
    ///
    /// # Errors
    /// Those of the engine.
    fn backward(
        &self,
        engine: &E,
        request: &BackwardRequest<'_, E::Tensor>,
    ) -> Result<Vec<Option<E::Tensor>>, EngineError> {
        engine.backward(request)
    }

    /// Where a tensor says it lives.
    fn device_of(&self, engine: &E, tensor: &E::Tensor) -> String {
        engine.device_of(tensor)
    }
}

/// An engine with a hook.
pub(super) struct Hooked<'a, E, H> {
    pub engine: &'a E,
    pub hook: H,
}

impl<E: Engine, H: Hook<E>> Engine for Hooked<'_, E, H> {
    type Tensor = E::Tensor;

    fn info(&self) -> EngineInfo {
        self.engine.info()
    }

    fn supports(&self, op: &Op, dtype: DType, types: &[&Value], phase: Phase) -> Support {
        self.engine.supports(op, dtype, types, phase)
    }

    fn upload(&self, host: &HostTensor, leaf: Leaf) -> Result<Self::Tensor, EngineError> {
        self.engine.upload(host, leaf)
    }

    fn download(&self, tensor: &Self::Tensor) -> Result<HostTensor, EngineError> {
        self.engine.download(tensor)
    }

    fn apply(&self, call: &Call<'_>, inputs: &[&Self::Tensor]) -> Result<Vec<Self::Tensor>, EngineError> {
        self.hook.apply(self.engine, call, inputs)
    }

    fn watch(&self, tensor: &Self::Tensor) -> Result<(Self::Tensor, Self::Tensor), EngineError> {
        self.engine.watch(tensor)
    }

    fn backward(
        &self,
        request: &BackwardRequest<'_, Self::Tensor>,
    ) -> Result<Vec<Option<Self::Tensor>>, EngineError> {
        self.hook.backward(self.engine, request)
    }

    fn device_of(&self, tensor: &Self::Tensor) -> String {
        self.hook.device_of(self.engine, tensor)
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        self.engine.synchronize()
    }

    fn peak_memory_bytes(&self) -> Option<u64> {
        self.engine.peak_memory_bytes()
    }

    fn observes_itself(&self) -> bool {
        self.engine.observes_itself()
    }

    fn start_trace(&self) -> Result<(), EngineError> {
        self.engine.start_trace()
    }

    fn count_kernels(&self, pass: &mut dyn FnMut()) -> Option<Result<KernelEvidence, EngineError>> {
        self.engine.count_kernels(pass)
    }

    fn drain_events(&self) -> Vec<OperatorEvent> {
        self.engine.drain_events()
    }

    fn mark(&self, phase: Phase, node: Option<usize>) {
        self.hook.mark(phase, node);
        self.engine.mark(phase, node);
    }
}
