#include "runtime.h"
#include "software_mps.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/autograd/autograd.h>

#include <dlfcn.h>

#include <vector>

namespace parity {
namespace {

c10::DeviceType device_type(int32_t kind) {
  return static_cast<c10::DeviceType>(kind);
}

void availability(int32_t kind, ParityAvailability* out) {
  *out = {};
  switch (device_type(kind)) {
    case c10::DeviceType::CPU:
      *out = {1, 1, 1};
      return;
    case c10::DeviceType::CUDA: {
      const auto& hooks = at::detail::getCUDAHooks();
      out->built = hooks.hasCUDA() || at::CUDAHooksRegistry()->Has("CUDAHooks");
      out->count = out->built ? hooks.deviceCount() : 0;
      out->available = out->count > 0;
      return;
    }
    case c10::DeviceType::MPS: {
      const auto& hooks = at::detail::getMPSHooks();
      out->built = hooks.isBuilt() || at::MPSHooksRegistry()->Has("MPSHooks");
      out->available = hooks.hasMPS();
      out->count = out->available ? 1 : 0;
      return;
    }
    default:
      TORCH_CHECK(false, "no device of kind ", kind, " is used here");
  }
}

// From the driver, which the CUDA half has loaded: the runtime's property
// struct changes its layout between versions, these two functions do not.
std::string cuda_name(int32_t index) {
  using Get = int (*)(int*, int);
  using Name = int (*)(char*, int, int);
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  TORCH_CHECK(driver != nullptr, "the CUDA driver library is not loaded");
  const auto get = reinterpret_cast<Get>(dlsym(driver, "cuDeviceGet"));
  const auto name = reinterpret_cast<Name>(dlsym(driver, "cuDeviceGetName"));
  int device = 0;
  char text[256] = {};
  TORCH_CHECK(
      get != nullptr && name != nullptr && get(&device, index) == 0 && name(text, sizeof text - 1, device) == 0,
      "the CUDA driver does not know device ", index);
  return text;
}

c10::DeviceAllocator* counting_allocator(int32_t kind) {
  if (!c10::impl::hasDeviceGuardImpl(device_type(kind))) {
    return nullptr;
  }
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device_type(kind)));
}

bool device_memory(int32_t kind, int32_t index, ParityMemory* out) {
  *out = {};
  if (device_type(kind) == c10::DeviceType::MPS && parity_software_mps_is_registered()) {
    out->allocated_bytes = out->reserved_bytes = parity_software_mps_allocated_bytes();
    out->peak_allocated_bytes = out->peak_reserved_bytes = parity_software_mps_peak_bytes();
    return true;
  }
  if (device_type(kind) == c10::DeviceType::CPU) {
    return false;
  }
  auto* allocator = counting_allocator(kind);
  if (allocator == nullptr || !allocator->initialized()) {
    return false;
  }
  const auto stats = allocator->getDeviceStats(static_cast<c10::DeviceIndex>(index));
  const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  out->allocated_bytes = static_cast<uint64_t>(stats.allocated_bytes[all].current);
  out->peak_allocated_bytes = static_cast<uint64_t>(stats.allocated_bytes[all].peak);
  out->reserved_bytes = static_cast<uint64_t>(stats.reserved_bytes[all].current);
  out->peak_reserved_bytes = static_cast<uint64_t>(stats.reserved_bytes[all].peak);
  return true;
}

bool reset_peak(int32_t kind, int32_t index) {
  if (device_type(kind) == c10::DeviceType::MPS && parity_software_mps_is_registered()) {
    parity_software_mps_reset_peak();
    return true;
  }
  if (device_type(kind) == c10::DeviceType::CPU) {
    return false;
  }
  auto* allocator = counting_allocator(kind);
  if (allocator == nullptr || !allocator->initialized()) {
    return false;
  }
  allocator->resetPeakStats(static_cast<c10::DeviceIndex>(index));
  return true;
}

std::vector<at::Tensor> tensors(void* const* pointers, size_t count) {
  std::vector<at::Tensor> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    out.push_back(pointers[i] == nullptr ? at::Tensor() : *static_cast<at::Tensor*>(pointers[i]));
  }
  return out;
}

} // namespace
} // namespace parity

extern "C" {

parity::Error parity_availability(int32_t kind, ParityAvailability* out) {
  return parity::guarded([=] { parity::availability(kind, out); });
}

parity::Error parity_device_name(int32_t kind, int32_t index, char** name) {
  return parity::guarded([=] {
    *name = nullptr;
    if (parity::device_type(kind) == c10::DeviceType::CUDA) {
      *name = parity::copy_message(parity::cuda_name(index));
    } else if (parity::device_type(kind) == c10::DeviceType::MPS && parity_software_mps_is_registered()) {
      *name = parity::copy_message("emulated MPS in host memory");
    }
  });
}

parity::Error parity_synchronize(int32_t kind, int32_t index) {
  return parity::guarded([=] {
    if (parity::device_type(kind) == c10::DeviceType::CUDA) {
      at::detail::getCUDAHooks().deviceSynchronize(static_cast<c10::DeviceIndex>(index));
    } else if (parity::device_type(kind) == c10::DeviceType::MPS) {
      at::detail::getMPSHooks().deviceSynchronize();
    }
  });
}

parity::Error parity_device_memory(int32_t kind, int32_t index, ParityMemory* out, uint8_t* known) {
  return parity::guarded([=] { *known = parity::device_memory(kind, index, out) ? 1 : 0; });
}

parity::Error parity_reset_peak_memory(int32_t kind, int32_t index, uint8_t* known) {
  return parity::guarded([=] { *known = parity::reset_peak(kind, index) ? 1 : 0; });
}

parity::Error parity_gradients(
    void* const* outputs,
    void* const* seeds,
    size_t output_count,
    void* const* inputs,
    size_t input_count,
    uint8_t retain_graph,
    uint8_t create_graph,
    void** gradients) {
  return parity::guarded([=] {
    const auto found = torch::autograd::grad(
        parity::tensors(outputs, output_count),
        parity::tensors(inputs, input_count),
        seeds == nullptr ? std::vector<at::Tensor>() : parity::tensors(seeds, output_count),
        retain_graph != 0,
        create_graph != 0,
        /*allow_unused=*/true);
    TORCH_CHECK(found.size() == input_count, "autograd returned ", found.size(), " gradients for ", input_count, " inputs");
    for (size_t i = 0; i < input_count; ++i) {
      gradients[i] = found[i].defined() ? new at::Tensor(found[i]) : nullptr;
    }
  });
}
}
