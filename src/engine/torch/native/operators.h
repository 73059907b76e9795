// Operators whose scalar arguments tch leaves out, and where a tensor lives.
#pragma once

#include "abi.h"

#include <cstdint>

extern "C" {
// Tensors are at::Tensor*; `out` receives a new one.
parity::Error parity_addmm(void* bias, void* a, void* b, double beta, double alpha, void** out);
parity::Error parity_softplus(void* input, double beta, double threshold, void** out);
parity::Error parity_leaky_relu(void* input, double negative_slope, void** out);

// c10::DeviceType and index (-1: the only one).
parity::Error parity_device_of(void* tensor, int8_t* kind, int8_t* index);
}
