//! What the libtorch engine needs from C++ and tch does not offer: the operator
//! trace, the software MPS device, switches, device facts, gradients that tell
//! "not connected" from zero, and evidence of kernels.
//!
//! The C++ beside these files is compiled by `build.rs` against the headers of
//! the libtorch that torch-sys links. Everything `unsafe` of the engine is in
//! this folder; what leaves it is safe.
//!
//! Order matters at the start of a process, because libtorch keeps its first
//! answer about which devices there are: call [`software_mps::register`] or
//! [`load_cuda_part`] before anything else that names a device (tch's
//! `Cuda::is_available` included), and before the first backward, in which
//! autograd makes one thread a device.

mod device;
mod error;
mod ffi;
mod gradient;
mod library;
mod operators;
mod profile;
pub mod software_mps;
mod switches;
mod trace;

pub use device::{
    Availability, DeviceMemory, availability, device_memory, device_name, reset_peak_memory, synchronize,
};
pub use error::NativeError;
pub use gradient::{GradientOptions, gradients};
pub use library::{CudaPart, headers_version, libtorch_path, libtorch_version, load_cuda_part};
pub use operators::{addmm, device_of, leaky_relu, softplus};
pub use profile::{ProfileEvent, profile};
pub use switches::{
    MatmulPrecision, Switches, apply_switches, read_switches, set_inter_op_threads, set_intra_op_threads,
    threads,
};
pub use trace::{
    NodeMarker, Phase, PhaseMarker, RawDevice, RawEvent, RawKind, RawTensor, RawTrace, Scope, Trace,
    enter_node, enter_phase,
};
