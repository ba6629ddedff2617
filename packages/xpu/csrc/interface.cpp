// SPDX-License-Identifier: Apache-2.0
// What the Python module calls through ctypes, besides torch's operators. No exception leaves:
// a function returns null, or an error that lives until the thread's next call.
#include <string>

#include "runtime.h"
#include "units.h"

#define VLLM_OPS_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

thread_local std::string answer;

template <class Run>
const char* guarded(const Run& run) {
  try {
    run();
    return nullptr;
  } catch (const std::exception& error) {
    answer = error.what();
    return answer.c_str();
  }
}

sycl::queue& given(void* queue) {
  return queue != nullptr ? *static_cast<sycl::queue*>(queue) : vllm_ops::xpu::cpu_queue();
}

}  // namespace

VLLM_OPS_EXPORT int vllm_ops_xpu_units() { return int(vllm_ops::xpu::units().size()); }
VLLM_OPS_EXPORT const char* vllm_ops_xpu_unit_family(int unit) {
  return vllm_ops::xpu::units()[unit].family;
}
VLLM_OPS_EXPORT const char* vllm_ops_xpu_unit_dtype(int unit) {
  return vllm_ops::xpu::units()[unit].dtype;
}
VLLM_OPS_EXPORT int vllm_ops_xpu_unit_kernels(int unit) {
  return int(vllm_ops::xpu::units()[unit].instances.size());
}

// `queue`: a sycl::queue*, or null for the SYCL CPU device.
VLLM_OPS_EXPORT const char* vllm_ops_xpu_compile(void* queue, int unit, int* compiled) {
  return guarded([&] { *compiled = vllm_ops::xpu::compile_unit(given(queue), unit) ? 1 : 0; });
}

// The device's name and driver in `text`, cut to `size` bytes.
VLLM_OPS_EXPORT const char* vllm_ops_xpu_describe(void* queue, char* text, int size) {
  return guarded([&] {
    const std::string words = vllm_ops::xpu::describe(given(queue));
    text[words.copy(text, size_t(size - 1))] = '\0';
  });
}
