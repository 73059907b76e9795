#include "software_mps_internal.h"

#include "software_mps_faults.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>

#include <limits>
#include <optional>
#include <tuple>

namespace parity::software_mps {
namespace {

using at::IntArrayRef;
using at::Tensor;

const c10::DispatchKeySet kKeys(c10::DispatchKey::MPS);

c10::ScalarType checked_dtype(std::optional<c10::ScalarType> dtype) {
  const auto chosen = c10::dtype_or_default(dtype);
  refuse_float64(chosen);
  return chosen;
}

Tensor empty(
    IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> /*device*/,
    std::optional<bool> /*pin_memory*/,
    std::optional<c10::MemoryFormat> memory_format) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "emulated MPS: only dense tensors");
  return at::detail::empty_generic(size, allocator(), kKeys, checked_dtype(dtype), memory_format);
}

Tensor empty_strided(
    IntArrayRef size,
    IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> /*device*/,
    std::optional<bool> /*pin_memory*/) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::kStrided, "emulated MPS: only dense tensors");
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys, checked_dtype(dtype));
}

// Either side, or both, may be on the device; both are host memory.
void copy_bytes(const Tensor& from, const Tensor& to) {
  const KernelScope scope;
  const at::DisableRecordFunctionGuard silent;
  on_host(to).copy_(on_host(from));
}

Tensor& copy_(Tensor& self, const Tensor& source, bool /*non_blocking*/) {
  // A copy inside another kernel is part of that kernel; only a copy that the
  // program asked for can have a fault of its own.
  if (inside_kernel()) {
    copy_bytes(source, self);
    return self;
  }
  const at::DisableRecordFunctionGuard silent;
  auto call = faults().begin("aten::copy_", "");
  const auto seen = call.seen_input(source);
  std::optional<Tensor> before;
  if (call.loses(self)) {
    before = on_host(self).clone();
  }
  copy_bytes(seen, self);
  if (self.is_mps()) {
    if (source.is_mps()) {
      call.spoil(self);
    }
    if (before.has_value()) {
      on_host(self).copy_(*before);
    }
  }
  return self;
}

Tensor copy_from(const Tensor& self, const Tensor& to, bool /*non_blocking*/) {
  copy_bytes(self, to);
  return to;
}

const Tensor& resize_(const Tensor& self, IntArrayRef size, std::optional<c10::MemoryFormat> memory_format) {
  auto* impl = self.unsafeGetTensorImpl();
  at::native::resize_impl_cpu_(impl, size, /*stride=*/std::nullopt);
  if (memory_format.has_value() && *memory_format != c10::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*memory_format);
  }
  return self;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  if (to.sizes() != self.sizes()) {
    resize_(to, self.sizes(), std::nullopt);
  }
  copy_bytes(self, to);
  return to;
}

at::Scalar local_scalar_dense(const Tensor& self) {
  const at::DisableRecordFunctionGuard silent;
  return at::_local_scalar_dense(on_host(self));
}

// libtorch would ask its table of fused kernels, which holds no column for MPS
// in a build without it and throws. What follows is the path it takes on a
// device that has no fused kernel.
Tensor scaled_dot_product_attention(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const std::optional<Tensor>& mask,
    double dropout,
    bool causal,
    std::optional<double> scale,
    bool grouped) {
  // A boolean mask as numbers to add, as the caller of this path makes it.
  auto added = mask;
  if (mask.has_value() && mask->defined() && mask->scalar_type() == at::kBool) {
    added = at::zeros_like(*mask, query.options()).masked_fill(mask->logical_not(), -std::numeric_limits<double>::infinity());
  }
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, added, dropout, causal, /*dropout_mask=*/std::nullopt, scale, grouped));
}

} // namespace

Tensor on_host(const Tensor& tensor) {
  if (!tensor.is_mps()) {
    return tensor.is_leaf() && !tensor.requires_grad() ? tensor : tensor.detach();
  }
  const auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(c10::kCPU);
  if (tensor.numel() == 0) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  }
  auto* data = static_cast<char*>(tensor.storage().mutable_data()) +
      tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
  auto host = at::from_blob(data, tensor.sizes(), tensor.strides(), options);
  if (tensor.is_conj()) {
    host._set_conj(true);
  }
  if (tensor.is_neg()) {
    host._set_neg(true);
  }
  return host;
}

void register_kernels(torch::Library& library, torch::Library& autograd) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("resize_", TORCH_FN(resize_));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  // Both made of differentiable operators: right with and without gradients.
  library.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
  autograd.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
}

} // namespace parity::software_mps
