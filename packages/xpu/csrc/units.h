// SPDX-License-Identifier: Apache-2.0
// Every kernel of the package, in the units that are compiled together: a family in one dtype, so
// that a first call compiles what it needs and little more.
#pragma once

#include <sycl/sycl.hpp>
#include <vector>

namespace vllm_ops::xpu {

struct Instance {
  const void* address;  // of the function on the host, by which a launch asks for it
  const char* name;     // as C++ spells it within vllm_ops::gpu
#if defined(VLLM_OPS_AHEAD_OF_TIME)
  sycl::kernel_bundle<sycl::bundle_state::executable> (*bundle)(const sycl::context&);
  sycl::kernel_id (*id)();
#endif
};

struct Unit {
  const char* family;  // "gated"
  const char* dtype;   // "bfloat16"
  const char* header;  // "activation.h"
  std::vector<Instance> instances;
};

const std::vector<Unit>& units();

}  // namespace vllm_ops::xpu
