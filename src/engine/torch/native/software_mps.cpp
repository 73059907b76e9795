#include "software_mps.h"

#include "software_mps_faults.h"
#include "software_mps_internal.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace parity::software_mps {
namespace {

std::atomic<bool> registered{false};

// Autograd makes one thread a device in the process's first backward and never
// again. Whether that was too early shows only in a backward on the device.
void require_device_threads() {
  try {
    const auto x = at::ones({1}, at::TensorOptions().device(c10::DeviceType::MPS)).set_requires_grad(true);
    torch::autograd::grad({x.mul(2)}, {x}, {at::ones_like(x)});
  } catch (const c10::Error& error) {
    TORCH_CHECK(
        false,
        "the software MPS device came after the process's first backward, so autograd has no thread for it; "
        "register it first (",
        error.what_without_backtrace(),
        ")");
  }
}

void register_once() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (registered) {
    return;
  }
  TORCH_CHECK(
      !c10::impl::hasDeviceGuardImpl(c10::DeviceType::MPS),
      "this libtorch has a real MPS device; the software one is for machines without it");
  TORCH_CHECK(
      !c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA),
      "libtorch's CUDA part is loaded; a process has either CUDA or the software MPS device");
  register_device();
  // Registrations live as long as these objects: for the rest of the process.
  static auto* const library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::MPS, __FILE__, __LINE__);
  static auto* const fallback =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::MPS, __FILE__, __LINE__);
  static auto* const autograd =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradMPS, __FILE__, __LINE__);
  register_kernels(*library, *autograd);
  register_dispatch(*library, *fallback);
  require_device_threads();
  registered = true;
}

void require_registered() {
  TORCH_CHECK(registered, "the software MPS device is not registered in this process");
}

} // namespace
} // namespace parity::software_mps

namespace mps = parity::software_mps;

extern "C" {

parity::Error parity_software_mps_register() {
  return parity::guarded([] { mps::register_once(); });
}

bool parity_software_mps_is_registered() {
  return mps::registered;
}

parity::Error parity_software_mps_set_unsupported(const char* const* names, size_t count) {
  return parity::guarded([=] {
    mps::require_registered();
    mps::faults().set_unsupported(std::vector<std::string>(names, names + count));
  });
}

parity::Error parity_software_mps_add_fault(const char* op, const char* kind, double parameter) {
  return parity::guarded([=] {
    mps::require_registered();
    mps::faults().add(op, kind, parameter);
  });
}

parity::Error parity_software_mps_clear() {
  return parity::guarded([] { mps::faults().clear(); });
}

uint64_t parity_software_mps_fault_count() {
  return mps::faults().count();
}

uint64_t parity_software_mps_allocated_bytes() {
  return mps::allocated_bytes();
}

uint64_t parity_software_mps_peak_bytes() {
  return mps::peak_bytes();
}

void parity_software_mps_reset_peak() {
  mps::reset_peak();
}
}
