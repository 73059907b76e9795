#include "profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace parity {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

struct Held {
  std::mutex mutex;
  bool running = false;
  std::deque<std::string> names; // a deque: addresses stay as it grows
  std::vector<ParityProfileEvent> events;
};

Held& held() {
  static auto* const instance = new Held();
  return *instance;
}

// Kineto's activity types by number; its own name table is not exported.
const char* activity_name(uint8_t type) {
  static const char* const kNames[] = {
      "cpu_op",          "user_annotation", "gpu_user_annotation", "gpu_memcpy",  "gpu_memset",
      "kernel",          "external",        "cuda_runtime",        "cuda_driver", "cpu_instant_event",
      "python_function", "overhead",        "mtia_runtime",        "mtia_ccp",    "mtia_insight",
      "cuda_sync",       "cuda_event",
  };
  return type < sizeof kNames / sizeof kNames[0] ? kNames[type] : "other";
}

ProfilerConfig configuration() {
  return ProfilerConfig(ProfilerState::KINETO, /*report_input_shapes=*/false);
}

void start(bool cuda) {
  const std::lock_guard<std::mutex> lock(held().mutex);
  TORCH_CHECK(!held().running, "a profile is running already; stop it first");
  std::set<ActivityType> activities{ActivityType::CPU};
  if (cuda) {
    activities.insert(ActivityType::CUDA);
  }
  profiler::prepareProfiler(configuration(), activities);
  profiler::enableProfiler(configuration(), activities);
  held().running = true;
}

void stop(ParityProfile* out) {
  const std::lock_guard<std::mutex> lock(held().mutex);
  TORCH_CHECK(held().running, "no profile is running");
  held().running = false;
  const auto result = profiler::disableProfiler();
  held().names.clear();
  held().events.clear();
  const auto origin = result->trace_start_ns();
  for (const auto& event : result->events()) {
    held().names.push_back(event.name());
    ParityProfileEvent one{};
    one.name = held().names.back().c_str();
    one.activity = activity_name(event.activityType());
    one.start_ns = event.startNs() > origin ? event.startNs() - origin : 0;
    one.duration_ns = event.durationNs();
    one.correlation = event.correlationId();
    one.linked_correlation = event.linkedCorrelationId();
    one.thread = event.startThreadId();
    one.bytes = event.nBytes();
    one.device_type = static_cast<int32_t>(event.deviceType());
    one.device_index = event.deviceIndex();
    held().events.push_back(one);
  }
  *out = {held().events.data(), held().events.size()};
}

} // namespace
} // namespace parity

extern "C" {

parity::Error parity_profile_start(uint8_t cuda) {
  return parity::guarded([=] { parity::start(cuda != 0); });
}

parity::Error parity_profile_stop(ParityProfile* out) {
  return parity::guarded([=] { parity::stop(out); });
}

void parity_profile_release() {
  const std::lock_guard<std::mutex> lock(parity::held().mutex);
  parity::held().names.clear();
  parity::held().events.clear();
}
}
