#include "software_mps_internal.h"

#include "software_mps_faults.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>
#include <memory>

namespace parity::software_mps {
namespace {

const c10::Device kDevice(c10::DeviceType::MPS, 0);

struct Counters {
  std::atomic<uint64_t> allocated{0};
  std::atomic<uint64_t> peak{0};
};

Counters& counters() {
  static Counters instance;
  return instance;
}

// Each block carries its size in front of it, so that freeing can count.
constexpr size_t kHeader = 64;

void free_block(void* data) {
  if (data == nullptr) {
    return;
  }
  auto* start = static_cast<char*>(data) - kHeader;
  uint64_t size = 0;
  std::memcpy(&size, start, sizeof size);
  counters().allocated -= size;
  c10::free_cpu(start);
}

struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) {
      return {nullptr, nullptr, &free_block, kDevice};
    }
    if (faults().device_has(Kind::FailAllocation)) {
      faults().count_strike();
      TORCH_CHECK_WITH(
          OutOfMemoryError, false, "emulated MPS: planted fault, the device refused to allocate ", bytes, " bytes");
    }
    auto* start = static_cast<char*>(c10::alloc_cpu(bytes + kHeader));
    const uint64_t size = bytes;
    std::memcpy(start, &size, sizeof size);
    const auto now = counters().allocated += size;
    auto peak = counters().peak.load();
    while (now > peak && !counters().peak.compare_exchange_weak(peak, now)) {
    }
    return {start + kHeader, start + kHeader, &free_block, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &free_block;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// One device, one stream, everything done when a call returns.
struct HostGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return c10::DeviceType::MPS;
  }
  c10::Device exchangeDevice(c10::Device /*device*/) const override {
    return kDevice;
  }
  c10::Device getDevice() const override {
    return kDevice;
  }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::Stream getStream(c10::Device /*device*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream exchangeStream(c10::Stream /*stream*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }
  void record(void** /*event*/, const c10::Stream& /*stream*/, c10::DeviceIndex /*device*/, c10::EventFlag /*flag*/)
      const override {}
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override {
    return true;
  }
  bool queryStream(const c10::Stream& /*stream*/) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream& /*stream*/) const override {}
  void synchronizeEvent(void* /*event*/) const override {}
  void synchronizeDevice(c10::DeviceIndex /*device*/) const override {}
};

struct HostHooks final : at::MPSHooksInterface {
  void init() const override {}
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasMPS() const override {
    return true;
  }
  bool isOnMacOSorNewer(unsigned /*major*/, unsigned /*minor*/) const override {
    return true; // asked only to choose between kernels, none of which exist here
  }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  void setCurrentDevice(c10::DeviceIndex /*device*/) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex /*device*/) const override {
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex /*device*/) const override {
    return 0;
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*device*/) const override {
    return at::detail::getDefaultCPUGenerator(); // kernels draw on the host
  }
  at::Generator getNewGenerator(c10::DeviceIndex /*device*/) const override {
    return at::detail::createCPUGenerator();
  }
  c10::Allocator* getMPSDeviceAllocator() const override {
    return allocator();
  }
  void deviceSynchronize() const override {}
  void commitStream() const override {}
  void emptyCache() const override {}
  size_t getCurrentAllocatedMemory() const override {
    return allocated_bytes();
  }
  size_t getDriverAllocatedMemory() const override {
    return allocated_bytes();
  }
};

} // namespace

c10::Allocator* allocator() {
  static HostAllocator instance;
  return &instance;
}

uint64_t allocated_bytes() {
  return counters().allocated;
}

uint64_t peak_bytes() {
  return counters().peak;
}

void reset_peak() {
  counters().peak = counters().allocated.load();
}

void refuse_float64(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(
      dtype != c10::ScalarType::Double && dtype != c10::ScalarType::ComplexDouble,
      "emulated MPS: a tensor of dtype float64 cannot be held on the MPS device; use float32");
}

void register_device() {
  c10::SetAllocator(c10::DeviceType::MPS, allocator());
  c10::impl::registerDeviceGuard(c10::DeviceType::MPS, new HostGuard());
  at::MPSHooksRegistry()->Register(
      "MPSHooks", [](at::MPSHooksArgs /*args*/) -> std::unique_ptr<at::MPSHooksInterface> {
        return std::make_unique<HostHooks>();
      });
  // libtorch keeps the first answer it gets for the life of the process; a
  // first backward asks as well.
  TORCH_CHECK(
      at::detail::getMPSHooks().hasMPS(),
      "libtorch was asked for its devices, or ran a first backward, before the software MPS device was registered; "
      "register it first");
}

} // namespace parity::software_mps
