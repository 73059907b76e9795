//! Operator events from libtorch's dispatcher, raw.
//!
//! Which operators ran, in which order and nesting, on which devices. What they
//! mean (a fallback, a round trip) is for the tracer to say. Events come from
//! the dispatcher alone; [`enter_node`] and [`enter_phase`] only tell it what
//! the process is doing, so that an event can be put to a node of the program.
#![expect(unsafe_code, reason = "reads records that C++ made")]

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::null;
use std::sync::Arc;

use super::error::{NativeError, check};
use super::ffi::{self, TraceBatch, TraceEvent, TraceTensor};

/// What the process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Phase {
    #[default]
    None = 0,
    Forward = 1,
    /// Told by autograd itself for all that runs under its engine; set it around
    /// [`super::gradients`] for the little that runs before.
    Backward = 2,
    Optimizer = 3,
    /// Uploads and downloads of the engine, outside the pass.
    Transfer = 4,
}

/// What kind of thing an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// An operator, or the autograd engine evaluating a node.
    Function,
    /// An autograd node, such as `AddmmBackward0`.
    BackwardFunction,
    /// A range named by a user.
    User,
}

/// `c10::DeviceType` with its index (-1: the only one).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RawDevice {
    Cpu,
    Cuda(i8),
    Mps,
    Meta,
    Other { kind: i8, index: i8 },
}

/// `c10::ScalarType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RawKind {
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
    Bool,
    Bf16,
    Other(i8),
}

/// One tensor among an event's arguments or results.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one tensor")]
pub struct RawTensor {
    /// Position in the argument or result list; the tensors of a list share one.
    pub argument: u16,
    /// False for an optional tensor that is absent; nothing else is told then.
    pub defined: bool,
    pub kind: RawKind,
    pub device: RawDevice,
    pub shape: Vec<i64>,
    /// `None`: contiguous, or not a dense tensor.
    pub strides: Option<Vec<i64>>,
    pub contiguous: bool,
    /// In elements; not zero for a view into a larger storage.
    pub storage_offset: i64,
    /// Elements times element size.
    pub bytes: u64,
    /// A plain number that libtorch wrapped; such a one lies on the CPU by right.
    pub wrapped_number: bool,
    pub requires_grad: bool,
}

/// One operator call, or one autograd node.
#[derive(Debug, Clone)]
pub struct RawEvent {
    /// Order of start, over all threads.
    pub sequence: u64,
    /// The enclosing event of the same thread.
    pub parent: Option<u64>,
    pub depth: u16,
    /// libtorch's own thread number; autograd's device threads have others.
    pub thread: u64,
    /// Such as `aten::addmm`.
    pub name: Arc<str>,
    /// Such as `out`; often empty.
    pub overload: Arc<str>,
    pub scope: Scope,
    pub phase: Phase,
    /// The program's node, in backward the node whose forward made the autograd node.
    pub node: Option<u32>,
    pub autograd_sequence: Option<i64>,
    /// Since the trace began.
    pub start_ns: u64,
    /// Of the host; for an asynchronous device the launch, not the kernel.
    pub duration_ns: u64,
    pub inputs: Vec<RawTensor>,
    pub outputs: Vec<RawTensor>,
}

/// All events of one trace, ascending by sequence.
#[derive(Debug, Clone, Default)]
pub struct RawTrace {
    pub events: Vec<RawEvent>,
    /// Events that had begun and not ended when the trace stopped; 0 in a sound one.
    pub unfinished: u64,
}

/// A running trace; one at a time in a process. Dropping it stops it.
#[derive(Debug)]
pub struct Trace {
    running: bool,
}

impl Trace {
    /// Starts to listen. Only events that begin from here on are seen.
    ///
    /// # Errors
    ///
    /// A trace that runs already (start), or none that does (stop).
    pub fn start() -> Result<Self, NativeError> {
        // SAFETY: takes nothing.
        check("start the operator trace", unsafe { ffi::parity_trace_start() })?;
        Ok(Self { running: true })
    }

    /// Stops and hands the events over.
    ///
    /// # Errors
    /// If no trace runs.
    pub fn stop(mut self) -> Result<RawTrace, NativeError> {
        self.running = false;
        let batch = stop()?;
        let trace = read(&batch);
        ffi::parity_trace_release();
        Ok(trace)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.running && stop().is_ok() {
            ffi::parity_trace_release();
        }
    }
}

/// While it lives, the calling thread is at one node of the program.
#[derive(Debug)]
pub struct NodeMarker(PhantomData<*const ()>); // of one thread: not Send

/// The forward of program node `node` begins. Nodes do not nest.
#[must_use]
pub fn enter_node(node: u32) -> NodeMarker {
    ffi::parity_trace_node_begin(i32::try_from(node).unwrap_or(-1));
    NodeMarker(PhantomData)
}

impl Drop for NodeMarker {
    fn drop(&mut self) {
        ffi::parity_trace_node_end();
    }
}

/// While it lives, the process is in one phase; the one before comes back after.
#[derive(Debug)]
pub struct PhaseMarker(u8);

#[must_use]
pub fn enter_phase(phase: Phase) -> PhaseMarker {
    PhaseMarker(ffi::parity_trace_set_phase(phase as u8))
}

impl Drop for PhaseMarker {
    fn drop(&mut self) {
        ffi::parity_trace_set_phase(self.0);
    }
}

fn stop() -> Result<TraceBatch, NativeError> {
    let mut batch = TraceBatch {
        events: null(),
        event_count: 0,
        tensors: null(),
        tensor_count: 0,
        dims: null(),
        dim_count: 0,
        names: null(),
        name_count: 0,
        unfinished: 0,
    };
    // SAFETY: fills the struct, or returns an error.
    check("stop the operator trace", unsafe { ffi::parity_trace_stop(&raw mut batch) })?;
    Ok(batch)
}

/// A slice over what C++ holds until the release.
fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the native part told pointer and count together; valid until release.
    unsafe { std::slice::from_raw_parts(data, count) }
}

fn read(batch: &TraceBatch) -> RawTrace {
    let tensors = slice(batch.tensors, batch.tensor_count);
    let dims = slice(batch.dims, batch.dim_count);
    let names: Vec<Arc<str>> = slice(batch.names, batch.name_count)
        .iter()
        // SAFETY: each is a string of the batch.
        .map(|&name| Arc::from(unsafe { CStr::from_ptr(name) }.to_string_lossy()))
        .collect();
    let events = slice(batch.events, batch.event_count)
        .iter()
        .map(|event| read_event(event, tensors, dims, &names))
        .collect();
    RawTrace { events, unfinished: batch.unfinished }
}

fn read_event(event: &TraceEvent, tensors: &[TraceTensor], dims: &[i64], names: &[Arc<str>]) -> RawEvent {
    let some = |first: u32, count: u32| -> Vec<RawTensor> {
        let (first, count) = (first as usize, count as usize);
        tensors[first..first + count].iter().map(|tensor| read_tensor(tensor, dims)).collect()
    };
    RawEvent {
        sequence: event.sequence,
        parent: u64::try_from(event.parent).ok(),
        depth: event.depth,
        thread: event.thread,
        name: Arc::clone(&names[event.name as usize]),
        overload: Arc::clone(&names[event.overload as usize]),
        scope: match event.scope {
            0 => Scope::Function,
            1 => Scope::BackwardFunction,
            _ => Scope::User,
        },
        phase: match event.phase {
            1 => Phase::Forward,
            2 => Phase::Backward,
            3 => Phase::Optimizer,
            4 => Phase::Transfer,
            _ => Phase::None,
        },
        node: u32::try_from(event.node).ok(),
        autograd_sequence: (event.autograd_sequence >= 0).then_some(event.autograd_sequence),
        start_ns: event.start_ns,
        duration_ns: event.duration_ns,
        inputs: some(event.first_input, event.inputs),
        outputs: some(event.first_output, event.outputs),
    }
}

fn read_tensor(tensor: &TraceTensor, dims: &[i64]) -> RawTensor {
    let has = |flag: u8| tensor.flags & flag != 0;
    let (first, ndim) = (tensor.first_dim as usize, tensor.ndim as usize);
    let strided = has(ffi::TENSOR_STRIDED);
    let contiguous = strided && has(ffi::TENSOR_CONTIGUOUS);
    RawTensor {
        argument: tensor.argument,
        defined: has(ffi::TENSOR_DEFINED),
        kind: kind(tensor.dtype),
        device: device(tensor.device_type, tensor.device_index),
        shape: dims[first..first + ndim].to_vec(),
        strides: (strided && !contiguous).then(|| dims[first + ndim..first + 2 * ndim].to_vec()),
        contiguous,
        storage_offset: tensor.storage_offset,
        bytes: tensor.bytes,
        wrapped_number: has(ffi::TENSOR_WRAPPED_NUMBER),
        requires_grad: has(ffi::TENSOR_REQUIRES_GRAD),
    }
}

fn kind(dtype: i8) -> RawKind {
    match dtype {
        0 => RawKind::U8,
        1 => RawKind::I8,
        2 => RawKind::I16,
        3 => RawKind::I32,
        4 => RawKind::I64,
        5 => RawKind::F16,
        6 => RawKind::F32,
        7 => RawKind::F64,
        11 => RawKind::Bool,
        15 => RawKind::Bf16,
        other => RawKind::Other(other),
    }
}

pub(super) fn device(kind: i8, index: i8) -> RawDevice {
    match kind {
        0 => RawDevice::Cpu,
        1 => RawDevice::Cuda(index),
        13 => RawDevice::Mps,
        14 => RawDevice::Meta,
        kind => RawDevice::Other { kind, index },
    }
}
