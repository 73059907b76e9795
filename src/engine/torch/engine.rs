//! [`TorchEngine`].

use std::cell::RefCell;

use tch::{Device, Tensor};

use super::emulate::{self, Emulation};
use super::modes::{self, ModeSettings};
use super::native::{self, GradientOptions, NodeMarker, PhaseMarker, RawDevice, Trace};
use super::tensor::{self, TorchTensor};
use super::{events, kernels, open, ops, support};
use crate::engine::canary::Presence;
use crate::engine::{
    BackwardRequest, Call, DeviceKind, DeviceSpec, Engine, EngineError, EngineInfo, KernelEvidence, Leaf,
    Support, Unsupported,
};
use crate::numerics::DType;
use crate::program::{Op, Value};
use crate::tensor::HostTensor;
use crate::trace::{OperatorEvent, Phase};

/// libtorch on one device.
#[derive(Debug)]
pub struct TorchEngine {
    spec: DeviceSpec,
    device: Device,
    version: String,
    device_name: Option<String>,
    emulation: RefCell<Vec<Emulation>>,
    at_work: RefCell<AtWork>,
}

/// What libtorch's observer is told about the pass that runs.
#[derive(Debug, Default)]
struct AtWork {
    node: Option<NodeMarker>,
    phase: Option<PhaseMarker>,
    trace: Option<Trace>,
}

impl AtWork {
    /// The old marker must go before the new one comes: it puts back what was before it.
    fn enter(&mut self, phase: native::Phase, node: Option<usize>) {
        self.leave();
        self.phase = Some(native::enter_phase(phase));
        self.node = node.and_then(|node| u32::try_from(node).ok()).map(native::enter_node);
    }

    fn leave(&mut self) {
        self.node = None;
        self.phase = None;
    }
}

impl TorchEngine {
    /// libtorch on `spec`, every switch that changes numbers set to its exact side (see
    /// [`TorchEngine::configure`]). The switches are the process's: one target a process.
    ///
    /// # Errors
    /// [`EngineError::Absent`] with the reason if the device is not there.
    pub fn new(spec: &DeviceSpec) -> Result<Self, EngineError> {
        let device = open::open(spec)?;
        let failed = |op: &str, message: String| EngineError::Failed {
            engine: format!("torch:{spec}"),
            op: op.to_owned(),
            message,
        };
        let version = native::libtorch_version().map_err(|e| failed("version", e.to_string()))?;
        let device_name = native::device_name(device).map_err(|e| failed("device name", e.to_string()))?;
        let engine = Self {
            spec: *spec,
            device,
            version,
            device_name,
            emulation: RefCell::default(),
            at_work: RefCell::default(),
        };
        engine.configure(&ModeSettings::default())?;
        Ok(engine)
    }

    /// Whether libtorch is built for the device and whether it is there: two of the three
    /// answers about a device, the third is the canary's.
    #[must_use]
    pub fn presence(spec: &DeviceSpec) -> Presence {
        open::look(spec).0
    }

    /// Sets libtorch's switches and reads them back.
    ///
    /// # Errors
    /// If libtorch kept another value than was asked for.
    pub fn configure(&self, settings: &ModeSettings) -> Result<(), EngineError> {
        modes::apply(settings).map_err(|message| self.failed("configure", &message))
    }

    /// Takes operators away from the software MPS device, or plants faults in it.
    ///
    /// # Errors
    /// If this is another device, or an operator does not exist there.
    pub fn emulate(&self, emulations: &[Emulation]) -> Result<(), EngineError> {
        if self.spec.kind != DeviceKind::MpsEmulated {
            return Err(self.failed("emulate", &"only torch:mps-emulated can be told what to lack"));
        }
        emulate::apply(emulations).map_err(|message| self.failed("emulate", &message))?;
        *self.emulation.borrow_mut() = emulations.to_vec();
        Ok(())
    }

    fn label(&self) -> String {
        format!("torch:{}", self.spec)
    }

    fn failed(&self, op: &str, message: &impl ToString) -> EngineError {
        EngineError::Failed { engine: self.label(), op: op.to_owned(), message: message.to_string() }
    }

    /// Runs what is not part of the pass, so that its events are not taken for the pass's.
    fn outside_the_pass<R>(work: impl FnOnce() -> R) -> R {
        let _marker = native::enter_phase(native::Phase::Transfer);
        work()
    }

    fn stop_trace(&self) -> Option<Trace> {
        let mut at_work = self.at_work.borrow_mut();
        at_work.leave();
        at_work.trace.take()
    }
}

impl Engine for TorchEngine {
    type Tensor = TorchTensor;

    fn info(&self) -> EngineInfo {
        let mut modes = modes::read();
        let emulation = self.emulation.borrow();
        if !emulation.is_empty() {
            let words: Vec<String> = emulation.iter().map(ToString::to_string).collect();
            modes.push((EngineInfo::EMULATED.to_owned(), words.join(" ")));
            let struck = native::software_mps::fault_count();
            modes.push((EngineInfo::STRUCK.to_owned(), struck.to_string()));
        }
        let deterministic = match self.spec.kind {
            DeviceKind::Cpu | DeviceKind::MpsEmulated => true,
            _ => modes.iter().any(|(name, value)| name == "deterministic_algorithms" && value == "true"),
        };
        EngineInfo {
            engine: "torch".to_owned(),
            version: self.version.clone(),
            device: self.spec.to_string(),
            device_name: self.device_name.clone(),
            emulated: self.spec.kind == DeviceKind::MpsEmulated,
            deterministic,
            modes,
        }
    }

    fn supports(&self, op: &Op, dtype: DType, types: &[&Value], phase: Phase) -> Support {
        support::supports(self.spec.kind, op, dtype, types, phase)
    }

    fn upload(&self, host: &HostTensor, leaf: Leaf) -> Result<TorchTensor, EngineError> {
        Self::outside_the_pass(|| tensor::upload(host, self.device, leaf))
            .map_err(|e| self.failed("upload", &e))
    }

    fn download(&self, tensor: &TorchTensor) -> Result<HostTensor, EngineError> {
        Self::outside_the_pass(|| tensor::download(&tensor.0)).map_err(|e| self.failed("download", &e))
    }

    fn apply(&self, call: &Call<'_>, inputs: &[&TorchTensor]) -> Result<Vec<TorchTensor>, EngineError> {
        if let Support::Unsupported(reason) =
            self.supports(call.op, call.dtype(), call.inputs, Phase::Forward)
        {
            let (engine, op, dtype) = (self.label(), call.op.name(), call.dtype());
            return Err(Unsupported { engine, op, dtype, reason }.into());
        }
        let inputs: Vec<&Tensor> = inputs.iter().map(|tensor| &*tensor.0).collect();
        let results = ops::apply(call.op, &inputs).map_err(|e| self.failed(&call.describe(), &e))?;
        if results.len() != call.outputs.len() {
            let message = format!("{} results came back, not {}", results.len(), call.outputs.len());
            return Err(self.failed(&call.describe(), &message));
        }
        for (result, declared) in results.iter().zip(call.outputs) {
            let kind = result.f_kind().map_err(|e| self.failed(&call.describe(), &ops::first_lines(&e)))?;
            if tensor::dtype_of(kind) != Some(declared.dtype) {
                let message = format!("the result is {kind:?}, the program says {}", declared.dtype);
                return Err(self.failed(&call.describe(), &message));
            }
        }
        Ok(results.into_iter().map(TorchTensor::from).collect())
    }

    fn backward(
        &self,
        request: &BackwardRequest<'_, TorchTensor>,
    ) -> Result<Vec<Option<TorchTensor>>, EngineError> {
        // libtorch refuses tensors that no gradient can reach; for us that is an answer.
        if !request.loss.0.requires_grad() {
            return Ok(vec![None; request.wrt.len()]);
        }
        let connected: Vec<bool> = request.wrt.iter().map(|tensor| tensor.0.requires_grad()).collect();
        let wrt: Vec<&Tensor> = request
            .wrt
            .iter()
            .zip(&connected)
            .filter(|(_, yes)| **yes)
            .map(|(tensor, _)| &*tensor.0)
            .collect();
        if wrt.is_empty() {
            return Ok(vec![None; request.wrt.len()]);
        }
        let found = native::gradients(&[&*request.loss.0], &wrt, &[], GradientOptions::default())
            .map_err(|e| self.failed("backward", &e))?;
        let mut found = found.into_iter();
        Ok(connected
            .into_iter()
            .map(|yes| if yes { found.next().flatten().map(TorchTensor::from) } else { None })
            .collect())
    }

    fn device_of(&self, tensor: &TorchTensor) -> String {
        match native::device_of(&tensor.0) {
            Ok(device) => tensor::device_label(device),
            Err(error) => format!("unknown ({error})"),
        }
    }

    fn synchronize(&self) -> Result<(), EngineError> {
        native::synchronize(self.device).map_err(|e| self.failed("synchronize", &e))
    }

    fn peak_memory_bytes(&self) -> Option<u64> {
        native::device_memory(self.device).ok().flatten().map(|memory| memory.peak_allocated_bytes)
    }

    /// Always: the interpreter may not write events of libtorch, traced or not.
    fn observes_itself(&self) -> bool {
        true
    }

    fn start_trace(&self) -> Result<(), EngineError> {
        drop(self.stop_trace()); // of a pass that failed
        let trace = Trace::start().map_err(|e| self.failed("trace", &e))?;
        self.at_work.borrow_mut().trace = Some(trace);
        Ok(())
    }

    fn count_kernels(&self, pass: &mut dyn FnMut()) -> Option<Result<KernelEvidence, EngineError>> {
        let DeviceKind::Cuda = self.spec.kind else { return None };
        let index = i8::try_from(self.spec.index).ok()?;
        let counted = native::profile(true, pass).map_err(|e| self.failed("profile", &e));
        Some(counted.map(|((), activities)| kernels::count(RawDevice::Cuda(index), &activities)))
    }

    fn drain_events(&self) -> Vec<OperatorEvent> {
        let trace = self.stop_trace();
        trace.and_then(|trace| trace.stop().ok()).map(|raw| events::convert(&raw)).unwrap_or_default()
    }

    fn mark(&self, phase: Phase, node: Option<usize>) {
        let phase = match phase {
            Phase::Forward => native::Phase::Forward,
            Phase::Backward => native::Phase::Backward,
            Phase::Optimizer => native::Phase::Optimizer,
        };
        self.at_work.borrow_mut().enter(phase, node);
    }
}
