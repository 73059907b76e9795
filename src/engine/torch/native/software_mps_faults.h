// Planted faults of the software MPS device, and its set of unsupported
// operators. Faults change what a kernel reads, writes or where it runs; the
// numbers that come out are those of an executed kernel, never invented ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace parity::software_mps {

enum class Kind {
  Scale, // "scale": results times (1 + parameter)
  IgnoreStorageOffset, // "ignore-storage-offset": a view is read from the start of its storage
  TransposedAsContiguous, // "transposed-as-contiguous": a transposed input's strides are ignored
  TailZero, // "tail-zero": the last, partial block of `parameter` elements is left at zero
  TailStale, // "tail-stale": ... holds what the block before it holds
  InPlaceLost, // "in-place-lost": a write to a non-contiguous destination never arrives
  BroadcastNotReduced, // "broadcast-not-reduced": in backward, a sum returns its first slice
  HalfAccumulation, // "half-accumulation": sums and products accumulate in the 16-bit type
  OneNan, // "one-nan": the middle element of the result is NaN
  Zeroed, // "zeroed": the result is all zeros
  FallbackEvery, // "fallback-every": every parameter-th call falls back in the open
  FallbackInBackward, // "fallback-in-backward": falls back in the open during backward only
  WrongFirstCall, // "wrong-first-call": the first call's results times (1 + parameter)
  Drift, // "drift": call number n returns its results times (1 + n * parameter)
  FailAllocation, // "fail-allocation": the device refuses memory; for "device" only
};

struct Rule {
  std::string op;
  Kind kind;
  double parameter;
  std::atomic<uint64_t> calls{0};
};

// One call of one operator, with the rules that apply to it.
class Call {
 public:
  bool untouched() const {
    return rules_.empty() && !open_;
  }
  // Whether it runs as a fallback in the open.
  bool open() const {
    return open_;
  }
  // What the kernel reads in place of `input`.
  at::Tensor seen_input(const at::Tensor& input);
  // Whether a write to `destination` gets lost.
  bool loses(const at::Tensor& destination);
  // What a differently accumulating or wrongly reducing kernel returns.
  std::optional<at::Tensor> recomputed(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments);
  // Changes a result where it lies.
  void spoil(const at::Tensor& result);

 private:
  friend class Faults;
  struct Match {
    std::shared_ptr<Rule> rule;
    uint64_t number; // this call's, from 1
  };
  std::vector<Match> rules_;
  bool open_ = false;
};

class Faults {
 public:
  Call begin(const std::string& name, const std::string& overload);
  // Whether the device as a whole has this fault.
  bool device_has(Kind kind);

  void set_unsupported(const std::vector<std::string>& names);
  void add(const std::string& op, const std::string& kind, double parameter);
  void clear();
  // One more call that a fault has changed.
  void count_strike();
  uint64_t count() const {
    return count_;
  }

 private:
  std::atomic<bool> any_{false}; // spares the lock when nothing is planted
  std::atomic<uint64_t> count_{0};
  std::mutex mutex_;
  std::unordered_set<std::string> unsupported_;
  std::unordered_map<std::string, std::vector<std::shared_ptr<Rule>>> rules_;
};

Faults& faults();

// "softmax" -> "aten::softmax"; refuses names that no kernel of this device
// answers to, and says which operator to name instead where that is known.
std::string checked_operator_name(const std::string& name);

} // namespace parity::software_mps
