#include "software_mps_faults.h"

#include "software_mps_internal.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace parity::software_mps {
namespace {

using at::Tensor;

const char* const kDeviceName = "device";

struct Named {
  const char* name;
  Kind kind;
};

constexpr Named kKinds[] = {
    {"scale", Kind::Scale},
    {"ignore-storage-offset", Kind::IgnoreStorageOffset},
    {"transposed-as-contiguous", Kind::TransposedAsContiguous},
    {"tail-zero", Kind::TailZero},
    {"tail-stale", Kind::TailStale},
    {"in-place-lost", Kind::InPlaceLost},
    {"broadcast-not-reduced", Kind::BroadcastNotReduced},
    {"half-accumulation", Kind::HalfAccumulation},
    {"one-nan", Kind::OneNan},
    {"zeroed", Kind::Zeroed},
    {"fallback-every", Kind::FallbackEvery},
    {"fallback-in-backward", Kind::FallbackInBackward},
    {"wrong-first-call", Kind::WrongFirstCall},
    {"drift", Kind::Drift},
    {"fail-allocation", Kind::FailAllocation},
};

Kind kind_of(const std::string& name) {
  std::string known;
  for (const auto& entry : kKinds) {
    if (name == entry.name) {
      return entry.kind;
    }
    known += std::string(known.empty() ? "" : ", ") + entry.name;
  }
  TORCH_CHECK(false, "no fault is called '", name, "'; there are: ", known);
}

bool in_backward() {
  return torch::autograd::get_current_node() != nullptr;
}

// ---- changing a result

void scale(const Tensor& host, double factor) {
  if (host.is_floating_point()) {
    host.mul_(factor);
  }
}

void set_one_nan(const Tensor& host) {
  if (!host.is_floating_point() || host.numel() == 0) {
    return;
  }
  auto left = host.numel() / 2;
  auto element = host;
  for (int64_t d = host.dim() - 1; d >= 0; --d) {
    element = element.select(d, left % host.size(d));
    left /= host.size(d);
  }
  element.fill_(std::numeric_limits<double>::quiet_NaN());
}

// In the order of elements; a result that fills whole blocks has no tail.
bool spoil_tail(const Tensor& host, double block_elements, bool stale) {
  const auto block = std::max<int64_t>(1, static_cast<int64_t>(block_elements));
  const auto tail = host.numel() % block;
  const auto start = host.numel() - tail;
  if (tail == 0) {
    return false;
  }
  auto flat = host.contiguous().clone().view(-1);
  if (stale && start >= tail) {
    flat.slice(0, start).copy_(flat.slice(0, start - block, start - block + tail).clone());
  } else {
    flat.slice(0, start).zero_();
  }
  host.copy_(flat.view(host.sizes()));
  return true;
}

// ---- recomputing a result

at::ScalarType narrow(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? at::kBFloat16 : at::kHalf;
}

// The reduced dimensions of a sum or mean, normalised; all of them if none is named.
std::vector<int64_t> reduced_dimensions(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments, int64_t rank) {
  std::vector<int64_t> dims;
  const auto at = schema.argumentIndexWithName("dim");
  if (at.has_value() && arguments[*at].isIntList()) {
    dims = arguments[*at].toIntVector();
  }
  if (dims.empty()) {
    for (int64_t d = 0; d < rank; ++d) {
      dims.push_back(d);
    }
  }
  for (auto& d : dims) {
    d = d < 0 ? d + rank : d;
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

bool keeps_dimensions(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const auto at = schema.argumentIndexWithName("keepdim");
  return at.has_value() && arguments[*at].isBool() && arguments[*at].toBool();
}

// Reduced dimensions first and flattened: [terms, rest...].
Tensor terms_first(const Tensor& input, const std::vector<int64_t>& dims) {
  auto out = input;
  for (size_t i = 0; i < dims.size(); ++i) {
    out = out.movedim(dims[i], static_cast<int64_t>(i));
  }
  return dims.empty() ? out.unsqueeze(0) : out.flatten(0, static_cast<int64_t>(dims.size()) - 1);
}

Tensor restore_dimensions(Tensor out, const std::vector<int64_t>& dims, bool keep) {
  if (keep) {
    for (const auto d : dims) {
      out = out.unsqueeze(d);
    }
  }
  return out;
}

Tensor half_sum(const Tensor& terms) {
  const auto dtype = narrow(terms.scalar_type());
  const auto narrowed = terms.to(dtype);
  auto sum = at::zeros(narrowed.sizes().slice(1), narrowed.options());
  for (int64_t i = 0; i < narrowed.size(0); ++i) {
    sum.add_(narrowed.select(0, i)); // each partial sum is rounded to 16 bits
  }
  return sum;
}

// a: [..., m, k], b: [..., k, n]
Tensor half_product(const Tensor& a, const Tensor& b) {
  const auto dtype = narrow(a.scalar_type());
  const auto left = a.to(dtype);
  const auto right = b.to(dtype);
  auto sum = left.select(-1, 0).unsqueeze(-1).mul(right.select(-2, 0).unsqueeze(-2));
  for (int64_t k = 1; k < left.size(-1); ++k) {
    sum.add_(left.select(-1, k).unsqueeze(-1).mul(right.select(-2, k).unsqueeze(-2)));
  }
  return sum;
}

std::optional<Tensor> half_accumulated(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  const auto& name = schema.name();
  const auto tensor = [&](size_t i) { return on_host(arguments[i].toTensor()); };
  if (name == "aten::sum" || name == "aten::mean") {
    const auto input = tensor(0);
    if (!input.is_floating_point() || input.numel() == 0) {
      return std::nullopt;
    }
    const auto dims = reduced_dimensions(schema, arguments, input.dim());
    const auto terms = terms_first(input, dims);
    auto out = half_sum(terms);
    if (name == "aten::mean") {
      out = out.div(static_cast<double>(terms.size(0)));
    }
    return restore_dimensions(out, dims, keeps_dimensions(schema, arguments));
  }
  if (name == "aten::mm" || name == "aten::bmm") {
    return half_product(tensor(0), tensor(1));
  }
  if (name == "aten::addmm" || name == "aten::baddbmm") {
    const auto beta = arguments[3].toScalar();
    const auto alpha = arguments[4].toScalar();
    return half_product(tensor(1), tensor(2)).mul(alpha).add(tensor(0), beta);
  }
  if (name == "aten::linear") {
    auto out = half_product(tensor(0), tensor(1).t());
    const auto bias = arguments[2].isTensor() ? arguments[2].toTensor() : Tensor();
    return bias.defined() ? out.add(on_host(bias)) : out;
  }
  return std::nullopt;
}

std::optional<Tensor> first_slice(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  if (schema.name() != "aten::sum" || !in_backward()) {
    return std::nullopt;
  }
  const auto input = on_host(arguments[0].toTensor());
  const auto dims = reduced_dimensions(schema, arguments, input.dim());
  const auto terms = terms_first(input, dims);
  if (terms.size(0) < 2) {
    return std::nullopt;
  }
  return restore_dimensions(terms.select(0, 0), dims, keeps_dimensions(schema, arguments));
}

std::vector<int64_t> row_major_strides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (auto d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

bool is_transposed(const Tensor& tensor) {
  // Some dimension steps further than the one to its left, and nothing repeats.
  int64_t previous = std::numeric_limits<int64_t>::max();
  bool out_of_order = false;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) < 2) {
      continue;
    }
    if (tensor.stride(d) == 0) {
      return false;
    }
    out_of_order |= tensor.stride(d) > previous;
    previous = tensor.stride(d);
  }
  const auto held = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  return out_of_order && tensor.storage_offset() + tensor.numel() <= held;
}

} // namespace

Tensor Call::seen_input(const Tensor& input) {
  if (!input.defined() || !input.is_mps()) {
    return input;
  }
  auto seen = input;
  for (const auto& match : rules_) {
    if (match.rule->kind == Kind::IgnoreStorageOffset && seen.storage_offset() > 0) {
      seen = seen.as_strided(seen.sizes(), seen.strides(), 0);
      faults().count_strike();
    } else if (match.rule->kind == Kind::TransposedAsContiguous && is_transposed(seen)) {
      seen = seen.as_strided(seen.sizes(), row_major_strides(seen.sizes()), seen.storage_offset());
      faults().count_strike();
    }
  }
  return seen;
}

bool Call::loses(const Tensor& destination) {
  if (!destination.defined() || !destination.is_mps() || destination.is_contiguous()) {
    return false;
  }
  for (const auto& match : rules_) {
    if (match.rule->kind == Kind::InPlaceLost) {
      faults().count_strike();
      return true;
    }
  }
  return false;
}

std::optional<Tensor> Call::recomputed(
    const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  for (const auto& match : rules_) {
    std::optional<Tensor> out;
    if (match.rule->kind == Kind::HalfAccumulation) {
      out = half_accumulated(schema, arguments);
    } else if (match.rule->kind == Kind::BroadcastNotReduced) {
      out = first_slice(schema, arguments);
    }
    if (out.has_value()) {
      faults().count_strike();
      return out;
    }
  }
  return std::nullopt;
}

void Call::spoil(const Tensor& result) {
  if (rules_.empty() || !result.defined() || !result.is_mps() || result.numel() == 0) {
    return;
  }
  const auto host = on_host(result);
  for (const auto& match : rules_) {
    const auto parameter = match.rule->parameter;
    bool changed = true;
    switch (match.rule->kind) {
      case Kind::Scale:
        scale(host, 1 + parameter);
        break;
      case Kind::Drift:
        scale(host, 1 + static_cast<double>(match.number) * parameter);
        break;
      case Kind::WrongFirstCall:
        changed = match.number == 1;
        if (changed) {
          scale(host, 1 + parameter);
        }
        break;
      case Kind::OneNan:
        set_one_nan(host);
        break;
      case Kind::Zeroed:
        host.zero_();
        break;
      case Kind::TailZero:
      case Kind::TailStale:
        changed = spoil_tail(host, parameter, match.rule->kind == Kind::TailStale);
        break;
      default:
        changed = false;
    }
    if (changed) {
      faults().count_strike();
    }
  }
}

Faults& faults() {
  static auto* const instance = new Faults();
  return *instance;
}

Call Faults::begin(const std::string& name, const std::string& overload) {
  Call call;
  if (!any_.load(std::memory_order_acquire)) {
    return call;
  }
  const auto full = overload.empty() ? name : name + "." + overload;
  const std::lock_guard<std::mutex> lock(mutex_);
  call.open_ = unsupported_.count(name) != 0 || unsupported_.count(full) != 0;
  const auto take = [&](const std::string& key) {
    const auto found = rules_.find(key);
    if (found == rules_.end()) {
      return;
    }
    for (const auto& rule : found->second) {
      const auto number = ++rule->calls;
      if (rule->kind == Kind::FallbackEvery) {
        const auto every = std::max<uint64_t>(1, static_cast<uint64_t>(rule->parameter));
        if (number % every == 0) {
          call.open_ = true;
          count_strike();
        }
      } else if (rule->kind == Kind::FallbackInBackward) {
        if (in_backward()) {
          call.open_ = true;
          count_strike();
        }
      } else {
        call.rules_.push_back({rule, number});
      }
    }
  };
  take(name);
  if (full != name) {
    take(full);
  }
  take(kDeviceName);
  return call;
}

bool Faults::device_has(Kind kind) {
  if (!any_.load(std::memory_order_acquire)) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = rules_.find(kDeviceName);
  if (found == rules_.end()) {
    return false;
  }
  return std::any_of(
      found->second.begin(), found->second.end(), [kind](const auto& rule) { return rule->kind == kind; });
}

void Faults::set_unsupported(const std::vector<std::string>& names) {
  std::unordered_set<std::string> checked;
  for (const auto& name : names) {
    checked.insert(checked_operator_name(name));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  unsupported_ = std::move(checked);
  any_ = !unsupported_.empty() || !rules_.empty();
}

void Faults::add(const std::string& op, const std::string& kind_name, double parameter) {
  const auto kind = kind_of(kind_name);
  const bool whole_device = op == kDeviceName;
  TORCH_CHECK(
      whole_device || kind != Kind::FailAllocation, "fault '", kind_name, "' is one of the whole device: name 'device'");
  auto rule = std::make_shared<Rule>();
  rule->op = whole_device ? op : checked_operator_name(op);
  rule->kind = kind;
  rule->parameter = parameter;
  const std::lock_guard<std::mutex> lock(mutex_);
  rules_[rule->op].push_back(rule);
  any_ = true;
}

void Faults::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  rules_.clear();
  unsupported_.clear();
  any_ = false;
  count_ = 0;
}

void Faults::count_strike() {
  ++count_;
}

} // namespace parity::software_mps
