// SPDX-License-Identifier: Apache-2.0
// The SYCL queue of a tensor's device; included by the binding of shared/csrc/gpu, so it sees torch
// and no SYCL header. A queue is passed on as a void*.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/DeviceType.h>

#include <optional>

#include "binding/checks.h"

// The current stream's sycl::queue*. Builds of torch without XPU don't have it, and the library
// must load there too.
extern "C" AOTITorchError aoti_torch_get_current_xpu_stream(int32_t, void**) __attribute__((weak));

namespace vllm_ops::xpu {

// The queue of the SYCL CPU device, or null and the reason why there is none.
void* cpu_queue_or_null(const char** reason);

inline void* queue_of(const char* op, const torch::stable::Tensor& x,
                      std::optional<torch::stable::accelerator::DeviceGuard>& guard) {
  using torch::headeronly::DeviceType;
  const DeviceType type = x.device().type();
  void* queue = nullptr;
  if (type == DeviceType::CPU) {  // only where the tests registered the kernels for it
    const char* reason = nullptr;
    queue = cpu_queue_or_null(&reason);
    if (queue == nullptr) binding::fail(op, ": vllm_ops.xpu finds no SYCL CPU device: ", reason);
    return queue;
  }
  if (type != DeviceType::XPU) {
    binding::fail(op, ": vllm_ops.xpu runs on xpu tensors only, got ", binding::device_name(x));
  }
  if (aoti_torch_get_current_xpu_stream == nullptr) {
    binding::fail(op, ": vllm_ops.xpu needs a build of torch with XPU support");
  }
  guard.emplace(x.get_device_index());
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_xpu_stream(x.get_device_index(), &queue));
  return queue;
}

}  // namespace vllm_ops::xpu
