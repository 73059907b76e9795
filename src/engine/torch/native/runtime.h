// The libtorch that is loaded: which one, its CUDA half, its switches, its
// devices; and gradients with a distinct answer for "not connected".
#pragma once

#include "abi.h"

#include <cstddef>
#include <cstdint>

extern "C" {

// ---- which libtorch
// "2.11.0", of the library that is loaded, not of the headers.
parity::Error parity_libtorch_version(char** version);
// The version of the headers this was compiled with.
const char* parity_libtorch_headers_version();
// Path of the loaded libtorch_cpu.
parity::Error parity_libtorch_path(char** path);

enum : int32_t {
  PARITY_CUDA_LOADED = 0, // by this call
  PARITY_CUDA_PRESENT = 1, // was in the process already
  PARITY_CUDA_ABSENT = 2, // no such file beside libtorch_cpu
  PARITY_CUDA_FAILED = 3, // the file is there and cannot be loaded
};
// Loads libtorch_cuda from beside libtorch_cpu. `detail` is the path looked at,
// or what the dynamic loader said.
parity::Error parity_load_cuda(int32_t* outcome, char** detail);

// ---- switches
struct ParitySwitches {
  uint8_t tf32_cublas; // follows float32_matmul_precision, and must agree with it
  uint8_t tf32_cudnn;
  uint8_t fp16_reduction_cublas; // reduced-precision reduction inside f16 matmuls
  uint8_t bf16_reduction_cublas;
  uint8_t fp16_accumulation_cublas;
  uint8_t half_reduction_math_sdp; // f16/bf16 reduction in unfused attention
  uint8_t fp16_reduction_cpu;
  uint8_t deterministic_algorithms;
  uint8_t deterministic_warn_only;
  uint8_t cudnn_benchmark;
  uint8_t cudnn_deterministic;
  uint8_t float32_matmul_precision; // 0 highest, 1 high, 2 medium
};
parity::Error parity_read_switches(ParitySwitches* switches);
parity::Error parity_apply_switches(const ParitySwitches* switches);

parity::Error parity_get_threads(int32_t* intra_op, int32_t* inter_op);
parity::Error parity_set_intra_op_threads(int32_t threads);
parity::Error parity_set_inter_op_threads(int32_t threads);

// ---- devices (`kind` is a c10::DeviceType: 0 CPU, 1 CUDA, 13 MPS)
struct ParityAvailability {
  uint8_t built;
  uint8_t available;
  int32_t count;
};
parity::Error parity_availability(int32_t kind, ParityAvailability* out);
// Null where the library knows no name.
parity::Error parity_device_name(int32_t kind, int32_t index, char** name);
parity::Error parity_synchronize(int32_t kind, int32_t index);

struct ParityMemory {
  uint64_t allocated_bytes;
  uint64_t peak_allocated_bytes;
  uint64_t reserved_bytes;
  uint64_t peak_reserved_bytes;
};
// `known` is 0 for a device whose allocator keeps no such figures.
parity::Error parity_device_memory(int32_t kind, int32_t index, ParityMemory* out, uint8_t* known);
parity::Error parity_reset_peak_memory(int32_t kind, int32_t index, uint8_t* known);

// ---- gradients (pointers are at::Tensor*, as tch holds them)
// Writes one owned at::Tensor* or null a wanted input into `gradients`. A null
// in `seeds` (or a null `seeds`) is the implicit one of a scalar output.
parity::Error parity_gradients(
    void* const* outputs,
    void* const* seeds,
    size_t output_count,
    void* const* inputs,
    size_t input_count,
    uint8_t retain_graph,
    uint8_t create_graph,
    void** gradients);
}
