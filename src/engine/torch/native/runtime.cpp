#include "runtime.h"

#include "software_mps.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <dlfcn.h>
#include <unistd.h>

#include <string>

namespace parity {
namespace {

// at::show_config() lists the build's settings, the version among them.
std::string version_of_loaded_library() {
  const auto config = at::show_config();
  const std::string key = "TORCH_VERSION=";
  const auto start = config.find(key);
  TORCH_CHECK(start != std::string::npos, "the loaded libtorch does not tell its version");
  const auto from = start + key.size();
  return config.substr(from, config.find_first_of(", \n", from) - from);
}

std::string path_of_libtorch_cpu() {
  Dl_info info{};
  const auto* symbol = reinterpret_cast<const void*>(static_cast<std::string (*)()>(&at::show_config));
  TORCH_CHECK(
      dladdr(symbol, &info) != 0 && info.dli_fname != nullptr, "the dynamic loader does not know where libtorch_cpu came from");
  return info.dli_fname;
}

std::string resolved(const std::string& path) {
  char* real = realpath(path.c_str(), nullptr);
  const std::string out = real == nullptr ? path : real;
  std::free(real);
  return out;
}

bool is_loaded(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) {
    return false;
  }
  dlclose(handle); // takes back the count that asking added
  return true;
}

void load_cuda(int32_t* outcome, char** detail) {
  TORCH_CHECK(
      !parity_software_mps_is_registered(),
      "the software MPS device is registered; a process has either CUDA or the software MPS device");
  const auto cpu = resolved(path_of_libtorch_cpu());
  const auto path = cpu.substr(0, cpu.rfind('/') + 1) + "libtorch_cuda.so";
  *detail = copy_message(path);
  if (is_loaded(path) || is_loaded("libtorch_cuda.so")) {
    *outcome = PARITY_CUDA_PRESENT;
    return;
  }
  if (access(path.c_str(), F_OK) != 0) {
    *outcome = PARITY_CUDA_ABSENT;
    return;
  }
  // Never closed: its static initialisers register kernels and hooks.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* said = dlerror();
    std::free(*detail);
    *detail = copy_message(said == nullptr ? "the dynamic loader gave no reason" : said);
    *outcome = PARITY_CUDA_FAILED;
    return;
  }
  *outcome = PARITY_CUDA_LOADED;
}

bool allows(at::CuBLASReductionOption option) {
  return option != at::CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK &&
      option != at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK;
}

void read_switches(ParitySwitches* out) {
  auto& context = at::globalContext();
  out->tf32_cublas = context.allowTF32CuBLAS();
  out->tf32_cudnn = context.allowTF32CuDNN();
  out->fp16_reduction_cublas = allows(context.allowFP16ReductionCuBLAS());
  out->bf16_reduction_cublas = allows(context.allowBF16ReductionCuBLAS());
  out->fp16_accumulation_cublas = context.allowFP16AccumulationCuBLAS();
  out->half_reduction_math_sdp = context.allowFP16BF16ReductionMathSDP();
  out->fp16_reduction_cpu = context.allowFP16ReductionCPU();
  out->deterministic_algorithms = context.deterministicAlgorithms();
  out->deterministic_warn_only = context.deterministicAlgorithmsWarnOnly();
  out->cudnn_benchmark = context.benchmarkCuDNN();
  out->cudnn_deterministic = context.deterministicCuDNN();
  out->float32_matmul_precision = static_cast<uint8_t>(context.float32MatmulPrecision());
}

void apply_switches(const ParitySwitches& in) {
  auto& context = at::globalContext();
  static const char* const kPrecision[] = {"highest", "high", "medium"};
  TORCH_CHECK(in.float32_matmul_precision < 3, "no such float32 matmul precision: ", int(in.float32_matmul_precision));
  // Through the precision alone. Setting TF32 by its own switch as well leaves
  // libtorch with two answers, and it then refuses to be asked.
  TORCH_CHECK(
      (in.tf32_cublas != 0) == (in.float32_matmul_precision != 0),
      "TF32 in matmuls follows float32_matmul_precision: highest without it, high or medium with it");
  context.setFloat32MatmulPrecision(kPrecision[in.float32_matmul_precision]);
  context.setAllowTF32CuDNN(in.tf32_cudnn != 0);
  context.setAllowFP16ReductionCuBLAS(in.fp16_reduction_cublas != 0);
  context.setAllowBF16ReductionCuBLAS(in.bf16_reduction_cublas != 0);
  context.setAllowFP16AccumulationCuBLAS(in.fp16_accumulation_cublas != 0);
  context.setAllowFP16BF16ReductionMathSDP(in.half_reduction_math_sdp != 0);
  if (in.fp16_reduction_cpu != (context.allowFP16ReductionCPU() ? 1 : 0)) {
    context.setAllowFP16ReductionCPU(in.fp16_reduction_cpu != 0); // refuses on CPUs without the instructions
  }
  context.setDeterministicAlgorithms(in.deterministic_algorithms != 0, in.deterministic_warn_only != 0);
  context.setBenchmarkCuDNN(in.cudnn_benchmark != 0);
  context.setDeterministicCuDNN(in.cudnn_deterministic != 0);
}

} // namespace
} // namespace parity

extern "C" {

parity::Error parity_libtorch_version(char** version) {
  return parity::guarded([=] { *version = parity::copy_message(parity::version_of_loaded_library()); });
}

const char* parity_libtorch_headers_version() {
  return TORCH_VERSION;
}

parity::Error parity_libtorch_path(char** path) {
  return parity::guarded([=] { *path = parity::copy_message(parity::resolved(parity::path_of_libtorch_cpu())); });
}

parity::Error parity_load_cuda(int32_t* outcome, char** detail) {
  return parity::guarded([=] { parity::load_cuda(outcome, detail); });
}

parity::Error parity_read_switches(ParitySwitches* switches) {
  return parity::guarded([=] { parity::read_switches(switches); });
}

parity::Error parity_apply_switches(const ParitySwitches* switches) {
  return parity::guarded([=] { parity::apply_switches(*switches); });
}

parity::Error parity_get_threads(int32_t* intra_op, int32_t* inter_op) {
  return parity::guarded([=] {
    *intra_op = at::get_num_threads();
    *inter_op = at::get_num_interop_threads();
  });
}

parity::Error parity_set_intra_op_threads(int32_t threads) {
  return parity::guarded([=] { at::set_num_threads(threads); });
}

parity::Error parity_set_inter_op_threads(int32_t threads) {
  return parity::guarded([=] { at::set_num_interop_threads(threads); });
}
}
