#include "trace.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/TensorBody.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace parity {
namespace {

// The Rust side reads these records as they lie.
static_assert(sizeof(ParityTraceTensor) == 32);
static_assert(sizeof(ParityTraceEvent) == 80);

using Clock = std::chrono::steady_clock;

// Autograd's numbers handed out while one program node was at work: a backward
// node with a number in [begin, end) of that thread belongs to it.
struct NodeSpan {
  uint64_t begin;
  uint64_t end;
  int32_t node;
};

// An event that has begun and not ended, on its thread's stack.
struct Open {
  uint32_t event;
  int32_t node;
  bool backward;
};

// One thread's records. Its mutex is contended only while a trace is stopped.
struct ThreadLog {
  std::mutex mutex;
  uint64_t generation = 0;
  std::vector<ParityTraceEvent> events;
  std::vector<ParityTraceTensor> tensors;
  std::vector<int64_t> dims;
  std::vector<Open> open;
  std::unordered_map<std::string, uint32_t> name_ids;
  std::vector<std::string> names;

  void reset(uint64_t to_generation) {
    generation = to_generation;
    events.clear();
    tensors.clear();
    dims.clear();
    open.clear();
    name_ids.clear();
    names.clear();
  }

  uint32_t intern(const char* text) {
    lookup.assign(text);
    const auto found = name_ids.find(lookup);
    if (found != name_ids.end()) {
      return found->second;
    }
    const auto id = static_cast<uint32_t>(names.size());
    names.push_back(lookup);
    name_ids.emplace(lookup, id);
    return id;
  }

 private:
  std::string lookup; // kept, so that a known name costs no allocation
};

struct Marker {
  int32_t node = -1;
  uint64_t first_sequence = 0;
};

// What a stopped trace hands out.
struct Drained {
  std::vector<ParityTraceEvent> events;
  std::vector<ParityTraceTensor> tensors;
  std::vector<int64_t> dims;
  std::vector<std::string> names;
  std::vector<const char*> name_pointers;
};

struct Tracer {
  std::mutex mutex; // guards everything that is not atomic
  std::atomic<uint64_t> generation{0}; // 0: no trace runs
  std::atomic<uint64_t> sequence{0};
  std::atomic<uint8_t> phase{PARITY_PHASE_NONE};
  uint64_t last_generation = 0;
  Clock::time_point origin;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
  std::vector<std::shared_ptr<ThreadLog>> logs;
  std::unordered_map<uint64_t, std::vector<NodeSpan>> spans; // by forward thread
  std::mutex spans_mutex;
  Drained drained;
};

// Never destroyed: autograd's worker threads outlive static destructors.
Tracer& tracer() {
  static auto* const instance = new Tracer();
  return *instance;
}

// How the autograd engine names the event around each node it evaluates.
constexpr std::string_view kEngine = "autograd::engine::";

thread_local Marker marker;

ThreadLog& this_thread_log() {
  thread_local std::shared_ptr<ThreadLog> log = [] {
    auto made = std::make_shared<ThreadLog>();
    const std::lock_guard<std::mutex> lock(tracer().mutex);
    tracer().logs.push_back(made);
    return made;
  }();
  return *log;
}

uint64_t nanoseconds_since_start() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - tracer().origin).count());
}

int32_t forward_node_of(uint64_t thread, int64_t autograd_sequence) {
  if (autograd_sequence < 0) {
    return -1; // gradient accumulation into a leaf has no number
  }
  const auto number = static_cast<uint64_t>(autograd_sequence);
  const std::lock_guard<std::mutex> lock(tracer().spans_mutex);
  const auto found = tracer().spans.find(thread);
  if (found == tracer().spans.end()) {
    return -1;
  }
  const auto& spans = found->second; // ascending and disjoint: nodes do not nest
  auto after = std::upper_bound(
      spans.begin(), spans.end(), number, [](uint64_t n, const NodeSpan& span) { return n < span.begin; });
  if (after == spans.begin()) {
    return -1;
  }
  --after;
  return number < after->end ? after->node : -1;
}

void record_tensor(ThreadLog& log, const at::Tensor& tensor, uint16_t argument) {
  ParityTraceTensor out{};
  out.argument = argument;
  out.first_dim = static_cast<uint32_t>(log.dims.size());
  out.device_index = -1;
  out.dtype = -1;
  if (tensor.defined()) {
    const auto* impl = tensor.unsafeGetTensorImpl();
    const auto sizes = impl->sizes();
    const auto device = impl->device();
    out.flags = PARITY_TENSOR_DEFINED;
    out.device_type = static_cast<int8_t>(device.type());
    out.device_index = device.index();
    out.dtype = static_cast<int8_t>(impl->dtype().toScalarType());
    out.ndim = static_cast<uint16_t>(sizes.size());
    out.bytes = static_cast<uint64_t>(impl->numel()) * impl->itemsize();
    log.dims.insert(log.dims.end(), sizes.begin(), sizes.end());
    if (impl->is_wrapped_number()) {
      out.flags |= PARITY_TENSOR_WRAPPED_NUMBER;
    }
    if (impl->requires_grad()) {
      out.flags |= PARITY_TENSOR_REQUIRES_GRAD;
    }
    if (impl->layout() == at::kStrided) {
      out.flags |= PARITY_TENSOR_STRIDED;
      out.storage_offset = impl->storage_offset();
      if (impl->is_contiguous()) {
        out.flags |= PARITY_TENSOR_CONTIGUOUS;
      } else {
        const auto strides = impl->strides();
        log.dims.insert(log.dims.end(), strides.begin(), strides.end());
      }
    }
  }
  log.tensors.push_back(out);
}

// Tensors, lists of tensors and lists of optional tensors; scalars are passed over.
uint32_t record_values(ThreadLog& log, c10::ArrayRef<const c10::IValue> values) {
  const auto before = log.tensors.size();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& value = values[i];
    const auto argument = static_cast<uint16_t>(i);
    if (value.isTensor()) {
      record_tensor(log, value.toTensor(), argument);
    } else if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) {
          record_tensor(log, element.toTensor(), argument);
        }
      }
    }
  }
  return static_cast<uint32_t>(log.tensors.size() - before);
}

struct Context final : at::ObserverContext {
  Context(uint64_t generation_, uint32_t event_) : generation(generation_), event(event_) {}
  uint64_t generation;
  uint32_t event;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  auto& trace = tracer();
  const auto generation = trace.generation.load(std::memory_order_acquire);
  if (generation == 0 || function.isAsync()) {
    return nullptr;
  }
  auto& log = this_thread_log();
  const std::lock_guard<std::mutex> lock(log.mutex);
  if (log.generation != generation) {
    log.reset(generation);
  }

  const char* name = function.name();
  ParityTraceEvent event{};
  event.sequence = trace.sequence.fetch_add(1, std::memory_order_relaxed);
  event.parent = -1;
  event.thread = function.threadId();
  event.autograd_sequence = function.seqNr();
  event.scope = static_cast<uint8_t>(function.scope());
  event.depth = static_cast<uint16_t>(log.open.size());
  event.node = marker.node;
  event.name = log.intern(name);
  event.overload = log.intern(function.overload_name());

  bool backward = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  if (!log.open.empty()) {
    const auto& enclosing = log.open.back();
    event.parent = static_cast<int64_t>(log.events[enclosing.event].sequence);
    if (enclosing.backward) {
      backward = true;
      event.node = enclosing.node;
    }
  }
  if (std::string_view(name).substr(0, kEngine.size()) == kEngine) {
    backward = true;
    event.node = -1; // until the autograd node inside it tells its number
  } else if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    // Only this event carries the number and the thread of the forward operator.
    // The engine's event around it, and what else that runs, belong there too.
    event.node = forward_node_of(function.forwardThreadId(), function.seqNr());
    if (!log.open.empty()) {
      auto& enclosing = log.open.back();
      enclosing.node = event.node;
      log.events[enclosing.event].node = event.node;
    }
  }
  event.phase = backward ? static_cast<uint8_t>(PARITY_PHASE_BACKWARD)
                         : trace.phase.load(std::memory_order_relaxed);

  event.first_input = static_cast<uint32_t>(log.tensors.size());
  event.inputs = record_values(log, function.inputs());
  const auto index = static_cast<uint32_t>(log.events.size());
  log.open.push_back({index, event.node, backward});
  event.start_ns = nanoseconds_since_start();
  event.duration_ns = UINT64_MAX; // until it ends
  log.events.push_back(event);
  return std::make_unique<Context>(generation, index);
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  const auto* ours = static_cast<Context*>(context);
  if (ours == nullptr) {
    return;
  }
  const auto now_ns = nanoseconds_since_start();
  auto& log = this_thread_log();
  const std::lock_guard<std::mutex> lock(log.mutex);
  // Another generation: the trace this event began in was stopped meanwhile.
  if (log.generation != ours->generation || ours->event >= log.events.size()) {
    return;
  }
  const auto first = static_cast<uint32_t>(log.tensors.size());
  const auto& outputs = function.outputs();
  const auto count = record_values(log, c10::ArrayRef<c10::IValue>(outputs));
  auto& event = log.events[ours->event];
  event.duration_ns = now_ns - event.start_ns;
  event.first_output = first;
  event.outputs = count;
  while (!log.open.empty() && log.open.back().event >= ours->event) {
    log.open.pop_back();
  }
}

void append(Drained& out, ThreadLog& log) {
  const auto tensor_base = static_cast<uint32_t>(out.tensors.size());
  const auto dim_base = static_cast<uint32_t>(out.dims.size());
  const auto name_base = static_cast<uint32_t>(out.names.size());
  for (auto event : log.events) {
    event.first_input += tensor_base;
    event.first_output += tensor_base;
    event.name += name_base;
    event.overload += name_base;
    out.events.push_back(event);
  }
  for (auto tensor : log.tensors) {
    tensor.first_dim += dim_base;
    out.tensors.push_back(tensor);
  }
  out.dims.insert(out.dims.end(), log.dims.begin(), log.dims.end());
  std::move(log.names.begin(), log.names.end(), std::back_inserter(out.names));
}

void start() {
  auto& trace = tracer();
  const std::lock_guard<std::mutex> lock(trace.mutex);
  TORCH_CHECK(trace.generation.load() == 0, "a trace is running already; stop it first");
  {
    const std::lock_guard<std::mutex> spans_lock(trace.spans_mutex);
    trace.spans.clear();
  }
  trace.sequence = 0;
  trace.origin = Clock::now();
  trace.generation.store(++trace.last_generation, std::memory_order_release);
  trace.handle = at::addGlobalCallback(
      at::RecordFunctionCallback(on_start, on_end)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE}));
}

void stop(ParityTraceBatch* batch) {
  auto& trace = tracer();
  const std::lock_guard<std::mutex> lock(trace.mutex);
  const auto generation = trace.generation.load();
  TORCH_CHECK(generation != 0, "no trace is running");
  at::removeCallback(trace.handle);
  trace.handle = at::INVALID_CALLBACK_HANDLE;
  trace.generation.store(0, std::memory_order_release);

  auto& out = trace.drained = {};
  for (auto& log : trace.logs) {
    const std::lock_guard<std::mutex> log_lock(log->mutex);
    if (log->generation == generation) {
      append(out, *log);
    }
    log->reset(0);
  }
  // A log that only this list holds belonged to a thread that is gone.
  trace.logs.erase(
      std::remove_if(trace.logs.begin(), trace.logs.end(), [](const auto& log) { return log.use_count() == 1; }),
      trace.logs.end());
  std::sort(out.events.begin(), out.events.end(), [](const auto& a, const auto& b) { return a.sequence < b.sequence; });

  uint64_t unfinished = 0;
  for (auto& event : out.events) {
    if (event.duration_ns == UINT64_MAX) {
      event.duration_ns = 0;
      ++unfinished;
    }
  }
  for (const auto& name : out.names) {
    out.name_pointers.push_back(name.c_str());
  }
  *batch = {
      out.events.data(), out.events.size(), out.tensors.data(), out.tensors.size(), out.dims.data(),
      out.dims.size(), out.name_pointers.data(), out.name_pointers.size(), unfinished,
  };
}

void end_node() {
  if (marker.node < 0) {
    return;
  }
  const auto next = at::sequence_number::peek();
  if (next != marker.first_sequence) {
    auto& trace = tracer();
    const auto thread = at::RecordFunction::currentThreadId();
    const std::lock_guard<std::mutex> lock(trace.spans_mutex);
    trace.spans[thread].push_back({marker.first_sequence, next, marker.node});
  }
  marker.node = -1;
}

} // namespace
} // namespace parity

extern "C" {

parity::Error parity_trace_start() {
  return parity::guarded([] { parity::start(); });
}

parity::Error parity_trace_stop(ParityTraceBatch* batch) {
  return parity::guarded([batch] { parity::stop(batch); });
}

void parity_trace_release() {
  auto& trace = parity::tracer();
  const std::lock_guard<std::mutex> lock(trace.mutex);
  trace.drained = {};
}

void parity_trace_node_begin(int32_t node) {
  if (parity::tracer().generation.load(std::memory_order_relaxed) == 0) {
    return;
  }
  parity::end_node();
  parity::marker = {node, at::sequence_number::peek()};
}

void parity_trace_node_end() {
  // A marker set before the trace stopped must not leak into the next one.
  if (parity::tracer().generation.load(std::memory_order_relaxed) == 0) {
    parity::marker.node = -1;
    return;
  }
  parity::end_node();
}

uint8_t parity_trace_set_phase(uint8_t phase) {
  return parity::tracer().phase.exchange(phase, std::memory_order_relaxed);
}

void parity_native_free_string(char* text) {
  std::free(text);
}
}
