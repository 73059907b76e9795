// Shared by the files of the software MPS device; not for anyone else.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <cstdint>
#include <string>

namespace parity::software_mps {

// ---- device
c10::Allocator* allocator();
void register_device(); // allocator, guard, hooks
uint64_t allocated_bytes();
uint64_t peak_bytes();
void reset_peak();
// The device has no float64, like the real one.
void refuse_float64(c10::ScalarType dtype);

// ---- kernels
void register_kernels(torch::Library& library, torch::Library& autograd);
// The same memory as a CPU tensor. `tensor` must outlive the result.
at::Tensor on_host(const at::Tensor& tensor);

// ---- dispatch
void register_dispatch(torch::Library& library, torch::Library& fallback);
// True on a thread that is inside one of this device's kernels.
bool inside_kernel();
class KernelScope {
 public:
  KernelScope();
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;
};

} // namespace parity::software_mps
