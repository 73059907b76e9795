// What ran on the device, as libtorch's profiler saw it: evidence that a pass
// launched kernels. (The trace sees operators; the profiler sees kernels.)
#pragma once

#include "abi.h"

#include <cstddef>
#include <cstdint>

extern "C" {

struct ParityProfileEvent {
  const char* name;
  const char* activity; // "cpu_op", "kernel", "gpu_memcpy", "cuda_runtime", ...
  uint64_t start_ns; // since the profile began
  uint64_t duration_ns;
  uint64_t correlation; // joins a launch with its kernel
  uint64_t linked_correlation; // a kernel's or launch's operator; 0: none
  uint64_t thread;
  int64_t bytes; // of a copy; -1 where not told
  int32_t device_type;
  int32_t device_index;
};

struct ParityProfile {
  const ParityProfileEvent* events;
  size_t event_count;
};

// `cuda` asks for device activities as well.
parity::Error parity_profile_start(uint8_t cuda);
// The events stay valid until parity_profile_release. Same thread as the start.
parity::Error parity_profile_stop(ParityProfile* out);
void parity_profile_release();
}
