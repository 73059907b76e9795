// Operator events from libtorch's dispatcher, as flat records for Rust.
//
// Every record comes from one global at::RecordFunction callback; nothing else
// writes here. Markers only say which node of the program the calling thread is
// at, so that an event can be attributed to it.
#pragma once

#include "abi.h"

#include <cstddef>
#include <cstdint>

extern "C" {

// Flags of ParityTraceTensor.
enum : uint8_t {
  PARITY_TENSOR_DEFINED = 1,
  PARITY_TENSOR_CONTIGUOUS = 2, // its strides are not stored
  PARITY_TENSOR_WRAPPED_NUMBER = 4, // a Python-like scalar held in a tensor
  PARITY_TENSOR_REQUIRES_GRAD = 8,
  PARITY_TENSOR_STRIDED = 16, // dense layout; sparse ones have no strides
};

// Values of ParityTraceEvent::phase and of the phase marker.
enum : uint8_t {
  PARITY_PHASE_NONE = 0,
  PARITY_PHASE_FORWARD = 1,
  PARITY_PHASE_BACKWARD = 2,
  PARITY_PHASE_OPTIMIZER = 3,
  PARITY_PHASE_TRANSFER = 4,
};

struct ParityTraceTensor {
  int64_t storage_offset; // elements
  uint64_t bytes; // elements times element size, not the storage behind a view
  uint32_t first_dim; // into dims: `ndim` sizes, then, unless contiguous, `ndim` strides
  uint16_t ndim;
  uint16_t argument; // position in the argument (or result) list; a list's tensors share one
  int8_t device_type; // c10::DeviceType
  int8_t device_index;
  int8_t dtype; // c10::ScalarType
  uint8_t flags;
};

struct ParityTraceEvent {
  uint64_t sequence; // order of start, over all threads
  int64_t parent; // sequence of the enclosing event of the same thread, -1 if none
  uint64_t thread; // libtorch's own thread number
  int64_t autograd_sequence; // -1 if none
  uint64_t start_ns; // since the trace was started
  uint64_t duration_ns; // host time; for an asynchronous device the launch, not the kernel
  int32_t node; // program node, -1 if unknown
  uint32_t name; // into names
  uint32_t overload; // into names
  uint32_t first_input; // into tensors
  uint32_t inputs;
  uint32_t first_output;
  uint32_t outputs;
  uint16_t depth;
  uint8_t scope; // at::RecordScope
  uint8_t phase;
};

struct ParityTraceBatch {
  const ParityTraceEvent* events; // ascending by sequence
  size_t event_count;
  const ParityTraceTensor* tensors;
  size_t tensor_count;
  const int64_t* dims;
  size_t dim_count;
  const char* const* names;
  size_t name_count;
  uint64_t unfinished; // events that had begun but not ended when the trace stopped
};

// Starts a trace; an error if one runs.
parity::Error parity_trace_start();
// Stops it and hands the records over; they stay valid until parity_trace_release.
parity::Error parity_trace_stop(ParityTraceBatch* batch);
void parity_trace_release();

// The calling thread begins or ends the forward of one program node. Nodes do
// not nest: beginning one ends the one before.
void parity_trace_node_begin(int32_t node);
void parity_trace_node_end();
// What the process is doing; returns what it was doing before.
uint8_t parity_trace_set_phase(uint8_t phase);

void parity_native_free_string(char* text);
}
