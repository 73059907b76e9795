//! The C ABI of the files beside this one; layouts as in their headers.
#![expect(unsafe_code, reason = "declares functions written in C++")]

use std::ffi::{c_char, c_void};

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TraceTensor {
    pub storage_offset: i64,
    pub bytes: u64,
    pub first_dim: u32,
    pub ndim: u16,
    pub argument: u16,
    pub device_type: i8,
    pub device_index: i8,
    pub dtype: i8,
    pub flags: u8,
}

// As the C++ side asserts.
const _: () = assert!(size_of::<TraceTensor>() == 32 && size_of::<TraceEvent>() == 80);

pub(super) const TENSOR_DEFINED: u8 = 1;
pub(super) const TENSOR_CONTIGUOUS: u8 = 2;
pub(super) const TENSOR_WRAPPED_NUMBER: u8 = 4;
pub(super) const TENSOR_REQUIRES_GRAD: u8 = 8;
pub(super) const TENSOR_STRIDED: u8 = 16;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct TraceEvent {
    pub sequence: u64,
    pub parent: i64,
    pub thread: u64,
    pub autograd_sequence: i64,
    pub start_ns: u64,
    pub duration_ns: u64,
    pub node: i32,
    pub name: u32,
    pub overload: u32,
    pub first_input: u32,
    pub inputs: u32,
    pub first_output: u32,
    pub outputs: u32,
    pub depth: u16,
    pub scope: u8,
    pub phase: u8,
}

#[repr(C)]
pub(super) struct TraceBatch {
    pub events: *const TraceEvent,
    pub event_count: usize,
    pub tensors: *const TraceTensor,
    pub tensor_count: usize,
    pub dims: *const i64,
    pub dim_count: usize,
    pub names: *const *const c_char,
    pub name_count: usize,
    pub unfinished: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawSwitches {
    pub tf32_cublas: u8,
    pub tf32_cudnn: u8,
    pub fp16_reduction_cublas: u8,
    pub bf16_reduction_cublas: u8,
    pub fp16_accumulation_cublas: u8,
    pub half_reduction_math_sdp: u8,
    pub fp16_reduction_cpu: u8,
    pub deterministic_algorithms: u8,
    pub deterministic_warn_only: u8,
    pub cudnn_benchmark: u8,
    pub cudnn_deterministic: u8,
    pub float32_matmul_precision: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawAvailability {
    pub built: u8,
    pub available: u8,
    pub count: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_field_names, reason = "the unit stands in the name")]
pub(super) struct RawMemory {
    pub allocated_bytes: u64,
    pub peak_allocated_bytes: u64,
    pub reserved_bytes: u64,
    pub peak_reserved_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawProfileEvent {
    pub name: *const c_char,
    pub activity: *const c_char,
    pub start_ns: u64,
    pub duration_ns: u64,
    pub correlation: u64,
    pub linked_correlation: u64,
    pub thread: u64,
    pub bytes: i64,
    pub device_type: i32,
    pub device_index: i32,
}

#[repr(C)]
pub(super) struct RawProfile {
    pub events: *const RawProfileEvent,
    pub event_count: usize,
}

unsafe extern "C" {
    pub(super) fn parity_native_free_string(text: *mut c_char);

    pub(super) fn parity_trace_start() -> *mut c_char;
    pub(super) fn parity_trace_stop(batch: *mut TraceBatch) -> *mut c_char;
    pub(super) safe fn parity_trace_release();
    pub(super) safe fn parity_trace_node_begin(node: i32);
    pub(super) safe fn parity_trace_node_end();
    pub(super) safe fn parity_trace_set_phase(phase: u8) -> u8;

    pub(super) safe fn parity_software_mps_register() -> *mut c_char;
    pub(super) safe fn parity_software_mps_is_registered() -> bool;
    pub(super) fn parity_software_mps_set_unsupported(
        names: *const *const c_char,
        count: usize,
    ) -> *mut c_char;
    pub(super) fn parity_software_mps_add_fault(
        op: *const c_char,
        kind: *const c_char,
        parameter: f64,
    ) -> *mut c_char;
    pub(super) safe fn parity_software_mps_clear() -> *mut c_char;
    pub(super) safe fn parity_software_mps_fault_count() -> u64;

    pub(super) fn parity_libtorch_version(version: *mut *mut c_char) -> *mut c_char;
    pub(super) safe fn parity_libtorch_headers_version() -> *const c_char;
    pub(super) fn parity_libtorch_path(path: *mut *mut c_char) -> *mut c_char;
    pub(super) fn parity_load_cuda(outcome: *mut i32, detail: *mut *mut c_char) -> *mut c_char;

    pub(super) fn parity_read_switches(switches: *mut RawSwitches) -> *mut c_char;
    pub(super) fn parity_apply_switches(switches: *const RawSwitches) -> *mut c_char;
    pub(super) fn parity_get_threads(intra_op: *mut i32, inter_op: *mut i32) -> *mut c_char;
    pub(super) safe fn parity_set_intra_op_threads(threads: i32) -> *mut c_char;
    pub(super) safe fn parity_set_inter_op_threads(threads: i32) -> *mut c_char;

    pub(super) fn parity_availability(kind: i32, out: *mut RawAvailability) -> *mut c_char;
    pub(super) fn parity_device_name(kind: i32, index: i32, name: *mut *mut c_char) -> *mut c_char;
    pub(super) safe fn parity_synchronize(kind: i32, index: i32) -> *mut c_char;
    pub(super) fn parity_device_memory(
        kind: i32,
        index: i32,
        out: *mut RawMemory,
        known: *mut u8,
    ) -> *mut c_char;
    pub(super) fn parity_reset_peak_memory(kind: i32, index: i32, known: *mut u8) -> *mut c_char;

    pub(super) fn parity_gradients(
        outputs: *const *mut c_void,
        seeds: *const *mut c_void,
        output_count: usize,
        inputs: *const *mut c_void,
        input_count: usize,
        retain_graph: u8,
        create_graph: u8,
        gradients: *mut *mut c_void,
    ) -> *mut c_char;

    pub(super) safe fn parity_profile_start(cuda: u8) -> *mut c_char;
    pub(super) fn parity_profile_stop(out: *mut RawProfile) -> *mut c_char;
    pub(super) safe fn parity_profile_release();
}
