// SPDX-License-Identifier: Apache-2.0
#include "units.h"

#include "activation.h"
#include "layer_norm.h"
#include "qk_norm_rope.h"
#include "rms_norm_gated.h"

namespace vllm_ops::gpu {
namespace {

using xpu::Instance;
using xpu::Unit;

template <class... Params>
const void* address_of(void (*kernel)(Params...)) {
  return reinterpret_cast<const void*>(kernel);
}

#if defined(VLLM_OPS_AHEAD_OF_TIME)
namespace syclex = sycl::ext::oneapi::experimental;
template <auto* kKernel>
sycl::kernel_bundle<sycl::bundle_state::executable> bundle_of(const sycl::context& context) {
  return syclex::get_kernel_bundle<kKernel, sycl::bundle_state::executable>(context);
}
#define KERNEL(...)                                                     \
  Instance {                                                            \
    address_of(&__VA_ARGS__), #__VA_ARGS__, &bundle_of<(&__VA_ARGS__)>, \
        &syclex::get_kernel_id<(&__VA_ARGS__)>                          \
  }
#else
#define KERNEL(...) \
  Instance { address_of(&__VA_ARGS__), #__VA_ARGS__ }
#endif

#define GATED(T, op) \
  KERNEL(gated_kernel<T, Gated::op, true>), KERNEL(gated_kernel<T, Gated::op, false>)
#define UNARY(T, op) \
  KERNEL(unary_kernel<T, Unary::op, true>), KERNEL(unary_kernel<T, Unary::op, false>)
#define RMS_NORM(T, add)                                                                      \
  KERNEL(rms_norm_kernel<T, add, false, false>), KERNEL(rms_norm_kernel<T, add, true, true>), \
      KERNEL(rms_norm_kernel<T, add, true, false>)
#define ROTARY(T, source) \
  KERNEL(rotary_kernel<T, Angles::source, true>), KERNEL(rotary_kernel<T, Angles::source, false>)

#define UNITS_OF(T, dtype)                                                                        \
  Unit{"gated",                                                                                   \
       dtype,                                                                                     \
       "activation.h",                                                                            \
       {GATED(T, kSiluAndMul), GATED(T, kMulAndSilu), GATED(T, kGeluAndMul),                      \
        GATED(T, kGeluTanhAndMul), GATED(T, kFatreluAndMul), GATED(T, kSiluAndMulClamp),          \
        GATED(T, kSwigluOAIAndMul)}},                                                             \
      Unit{"unary",                                                                               \
           dtype,                                                                                 \
           "activation.h",                                                                        \
           {UNARY(T, kGelu), UNARY(T, kGeluTanh), UNARY(T, kGeluFast), UNARY(T, kQuickGelu),      \
            UNARY(T, kRelu2), UNARY(T, kXielu)}},                                                 \
      Unit{"rms_norm", dtype, "rms_norm.h", {RMS_NORM(T, false), RMS_NORM(T, true)}},             \
      Unit{"layer_norm",                                                                          \
           dtype,                                                                                 \
           "layer_norm.h",                                                                        \
           {KERNEL(layer_norm_kernel<T, false, false>), KERNEL(layer_norm_kernel<T, true, true>), \
            KERNEL(layer_norm_kernel<T, true, false>)}},                                          \
      Unit{"rms_norm_gated",                                                                      \
           dtype,                                                                                 \
           "rms_norm_gated.h",                                                                    \
           {KERNEL(rms_norm_gated_kernel<T, true>), KERNEL(rms_norm_gated_kernel<T, false>)}},    \
      Unit{"rotary",                                                                              \
           dtype,                                                                                 \
           "rotary.h",                                                                            \
           {ROTARY(T, kTable), ROTARY(T, kMultimodal), ROTARY(T, kGiven)}},                       \
      Unit {                                                                                      \
    "qk_norm_rope", dtype, "qk_norm_rope.h", {                                                    \
      KERNEL(qk_norm_rope_kernel<T, true>), KERNEL(qk_norm_rope_kernel<T, false>)                 \
    }                                                                                             \
  }

const std::vector<Unit>& all() {
  // Leaked, like everything that SYCL's own destructors might outlive.
  static const auto& found = *new std::vector<Unit>{
      UNITS_OF(float, "float32"), UNITS_OF(Half, "float16"), UNITS_OF(BFloat16, "bfloat16")};
  return found;
}

}  // namespace
}  // namespace vllm_ops::gpu

namespace vllm_ops::xpu {

const std::vector<Unit>& units() { return gpu::all(); }

}  // namespace vllm_ops::xpu
