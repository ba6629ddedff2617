// SPDX-License-Identifier: Apache-2.0
// Only checked by a compiler, never linked: what the package takes from an XPU build of torch is
// what torch's own headers declare.
#define USE_XPU
#define SYCL_DISABLE_FSYCL_SYCLHPP_WARNING
#include <ATen/core/Tensor.h>
#include <ATen/xpu/XPUContext.h>
#include <c10/core/DeviceGuard.h>
#include <c10/xpu/XPUStream.h>
#include <torch/csrc/inductor/aoti_torch/c/shim_xpu.h>

#include <type_traits>

#include "queue.h"  // declares aoti_torch_get_current_xpu_stream again, so both must agree
#include "runtime.h"
#include "units.h"

using Queue = decltype(std::declval<const c10::xpu::XPUStream&>().queue());
static_assert(std::is_same_v<Queue, sycl::queue&>, "a stream of torch is a SYCL queue");
static_assert(std::is_same_v<decltype(&aoti_torch_get_current_xpu_stream),
                             AOTITorchError (*)(int32_t, void**)>);

// An operator's way to its kernel, through torch's C++ headers in the place of its stable ABI.
const sycl::kernel& on_the_current_stream(const at::Tensor& x, const void* kernel) {
  const c10::DeviceGuard guard(x.device());
  sycl::queue& queue = c10::xpu::getCurrentXPUStream(x.device().index()).queue();
  void* stable = nullptr;
  aoti_torch_get_current_xpu_stream(x.device().index(), &stable);
  return vllm_ops::xpu::kernel_for(stable == &queue ? *static_cast<sycl::queue*>(stable) : queue,
                                   kernel);
}
