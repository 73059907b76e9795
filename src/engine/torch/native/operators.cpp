#include "operators.h"

#include <ATen/Functions.h>

namespace {

const at::Tensor& tensor(void* pointer) {
  return *static_cast<at::Tensor*>(pointer);
}

} // namespace

extern "C" {

parity::Error parity_addmm(void* bias, void* a, void* b, double beta, double alpha, void** out) {
  return parity::guarded([=] { *out = new at::Tensor(at::addmm(tensor(bias), tensor(a), tensor(b), beta, alpha)); });
}

parity::Error parity_softplus(void* input, double beta, double threshold, void** out) {
  return parity::guarded([=] { *out = new at::Tensor(at::softplus(tensor(input), beta, threshold)); });
}

parity::Error parity_leaky_relu(void* input, double negative_slope, void** out) {
  return parity::guarded([=] { *out = new at::Tensor(at::leaky_relu(tensor(input), negative_slope)); });
}

parity::Error parity_device_of(void* input, int8_t* kind, int8_t* index) {
  return parity::guarded([=] {
    const auto device = tensor(input).device();
    *kind = static_cast<int8_t>(device.type());
    *index = device.index();
  });
}
}
