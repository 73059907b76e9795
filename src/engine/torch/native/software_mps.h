// An MPS device in host memory, for tests on machines that have none.
//
// libtorch builds for Linux know the MPS dispatch key and the device type but
// hold no kernels for them. What is registered here, at run time and only when
// asked, makes `mps:0` a working device whose operators run on the CPU, so that
// the dispatcher, autograd's device threads and CPU fallbacks behave as they do
// with the real one. It is *emulated*: nothing measured on it says anything
// about Apple's device.
//
// software_mps.cpp           registration, the C ABI
// software_mps_device.cpp    memory, device guard, hooks
// software_mps_kernels.cpp   what needs a kernel of its own: creation, copies, views
// software_mps_dispatch.cpp  every other operator: silent, or a fallback in the open
// software_mps_faults.cpp    planted faults
#pragma once

#include "abi.h"

#include <cstddef>
#include <cstdint>

extern "C" {

// Must come before anything asks libtorch which devices there are, and before
// the process's first backward (autograd makes its device threads then).
parity::Error parity_software_mps_register();
bool parity_software_mps_is_registered();

// Operators, as "aten::_softmax" (every overload) or "aten::_softmax.out";
// "aten::" may be left out. Replaces the set.
parity::Error parity_software_mps_set_unsupported(const char* const* names, size_t count);
// Adds one fault; the kinds and what `parameter` means are in software_mps_faults.h.
// `op` is as above, or "device" for faults of the device as a whole.
parity::Error parity_software_mps_add_fault(const char* op, const char* kind, double parameter);
// Everything supported, no faults, counters at zero.
parity::Error parity_software_mps_clear();
// Calls whose result or way a fault has changed since the last clear.
uint64_t parity_software_mps_fault_count();
uint64_t parity_software_mps_allocated_bytes();
uint64_t parity_software_mps_peak_bytes();
void parity_software_mps_reset_peak();
}
