// SPDX-License-Identifier: Apache-2.0
// What travels from the torch operator to the glue, and from there into the kernel's scalars.
#pragma once

#include <cstdint>

namespace vllm_ops_gaudi {

struct GeluParams {
  int32_t tanh_form;
};

struct NormParams {
  float eps;
  float weight_offset;
  int32_t round_before_weight;
};

}  // namespace vllm_ops_gaudi
