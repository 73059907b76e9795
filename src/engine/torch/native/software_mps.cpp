#include "software_mps.h"

#include "software_mps_faults.h"
#include "software_mps_internal.h"

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace parity::software_mps {
namespace {

std::atomic<bool> registered{false};

void register_once() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (registered) {
    return;
  }
  TORCH_CHECK(
      !c10::impl::hasDeviceGuardImpl(c10::DeviceType::MPS),
      "this libtorch has a real MPS device; the software one is for machines without it");
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
