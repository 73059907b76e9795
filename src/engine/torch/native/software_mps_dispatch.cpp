#include "software_mps_internal.h"

#include "software_mps_faults.h"

#include <ATen/Functions.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parity::software_mps {
namespace {

using at::Tensor;
using torch::jit::Stack;

thread_local int kernel_depth = 0;

// Operators that libtorch breaks up before they reach a device that has no
// kernel for them. With one on the key they arrive whole, as at a device that
// has its own, and can be declared unsupported.
constexpr const char* kArriveWhole[] = {
    "native_layer_norm",
    "native_group_norm",
    "convolution",
    "convolution_backward",
    "constant_pad_nd",
};

struct Destination {
  Tensor tensor;
  Tensor content; // on the host, as it was before the call
};

// Batch normalisation writes its running statistics without saying so in its
// schema, so that a fallback would update copies of them. With the statistics
// as host tensors over the same memory the kernel writes where it should.
void share_statistics(const c10::OperatorHandle& op, Stack* stack) {
  if (op.operator_name().name != "aten::native_batch_norm" || !op.operator_name().overload_name.empty()) {
    return;
  }
  const auto first = stack->size() - op.schema().arguments().size();
  for (const size_t statistic : {3, 4}) { // running_mean, running_var
    auto& value = (*stack)[first + statistic];
    if (value.isTensor() && value.toTensor().defined()) {
      value = on_host(value.toTensor());
    }
  }
}

void run_kernel(const c10::OperatorHandle& op, Stack* stack, bool open) {
  share_statistics(op, stack);
  if (open) {
    at::native::cpu_fallback(op, stack);
  } else {
    const at::DisableRecordFunctionGuard silent;
    at::native::cpu_fallback(op, stack);
  }
}

// Lets the kernel see what a faulty one would, and remembers what it will lose.
std::vector<Destination> prepare(Call& call, const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> now, Stack* stack) {
  std::vector<Destination> lost;
  const auto first = stack->size() - now.size();
  for (size_t i = 0; i < now.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    if (now[i].isTensor()) {
      const Tensor tensor = now[i].toTensor();
      if (!written) {
        (*stack)[first + i] = call.seen_input(tensor);
      } else if (call.loses(tensor)) {
        lost.push_back({tensor, on_host(tensor).clone()});
      }
    } else if (now[i].isTensorList() && !written) {
      auto list = now[i].toTensorVector();
      for (auto& tensor : list) {
        tensor = call.seen_input(tensor);
      }
      (*stack)[first + i] = std::move(list);
    }
  }
  return lost;
}

// A forward operator's further results are what it keeps for its backward (an
// index, a mean); a fault is one of its result proper. A backward operator
// returns gradients only.
bool spoils_every_result(const std::string& name) {
  const std::string suffix = "_backward";
  return name.size() >= suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

void spoil_results(Call& call, const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments, Stack* stack) {
  const auto returned = schema.returns().size();
  const auto first = stack->size() - returned;
  const auto spoiled = spoils_every_result(schema.name()) ? returned : std::min<size_t>(returned, 1);
  for (size_t i = 0; i < spoiled; ++i) {
    const auto& value = (*stack)[first + i];
    if (value.isTensor()) {
      const Tensor result = value.toTensor();
      if (i == 0 && result.defined() && result.is_mps()) {
        if (const auto other = call.recomputed(schema, arguments)) {
          on_host(result).copy_(*other);
        }
      }
      call.spoil(result);
    } else if (value.isTensorList()) {
      for (const Tensor& result : value.toTensorVector()) {
        call.spoil(result);
      }
    }
  }
}

void dispatch(const c10::OperatorHandle& op, Stack* stack) {
  const auto& name = op.operator_name();
  if (inside_kernel()) { // part of another kernel
    run_kernel(op, stack, /*open=*/false);
    return;
  }
  auto call = faults().begin(name.name, name.overload_name);
  const KernelScope scope;
  if (call.untouched()) {
    run_kernel(op, stack, /*open=*/false);
    return;
  }
  const auto& schema = op.schema();
  std::vector<c10::IValue> arguments = torch::jit::last(*stack, schema.arguments().size()).vec();
  std::vector<Destination> lost;
  {
    const at::DisableRecordFunctionGuard silent;
    lost = prepare(call, schema, arguments, stack);
  }
  run_kernel(op, stack, call.open());
  const at::DisableRecordFunctionGuard silent;
  spoil_results(call, schema, arguments, stack);
  for (const auto& destination : lost) {
    on_host(destination.tensor).copy_(destination.content);
  }
}

// Whether calls of this overload come to this device's kernels.
bool arrives(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::MPS)) {
    return true;
  }
  using Key = c10::DispatchKey;
  for (const auto key :
       {Key::CompositeImplicitAutograd, Key::CompositeExplicitAutograd, Key::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) {
      return false;
    }
  }
  return op.hasKernelForDispatchKey(Key::CPU);
}

} // namespace

bool inside_kernel() {
  return kernel_depth > 0;
}

KernelScope::KernelScope() {
  ++kernel_depth;
}

KernelScope::~KernelScope() {
  --kernel_depth;
}

void register_dispatch(torch::Library& library, torch::Library& fallback) {
  fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&dispatch>());
  for (const auto* name : kArriveWhole) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&dispatch>());
  }
}

std::string checked_operator_name(const std::string& given) {
  const auto name = given.find("::") == std::string::npos ? "aten::" + given : given;
  const auto dot = name.find('.');
  const auto base = name.substr(0, dot);
  auto& dispatcher = c10::Dispatcher::singleton();
  bool known = false;
  for (const auto& candidate : dispatcher.getAllOpNames()) {
    if (candidate.name != base || (dot != std::string::npos && candidate.overload_name != name.substr(dot + 1))) {
      continue;
    }
    known = true;
    const auto op = dispatcher.findOp(candidate);
    if (op.has_value() && arrives(*op)) {
      return name;
    }
  }
  TORCH_CHECK(known, "libtorch has no operator '", name, "'");
  TORCH_CHECK(
      false, "'", name, "' is broken up before it reaches a device: name one of the operators it becomes (a trace shows them)");
}

} // namespace parity::software_mps
