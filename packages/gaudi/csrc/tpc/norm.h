// SPDX-License-Identifier: Apache-2.0
// What the RMS norms share.
#ifndef VLLM_OPS_GAUDI_TPC_NORM_H_
#define VLLM_OPS_GAUDI_TPC_NORM_H_

#include "special.h"
#include "vec.h"

static inline float128 add_squares(float128 value, float128 sums) {
  sums.v1 = v_f32_mac_b(value.v1, value.v1, sums.v1);
  sums.v2 = v_f32_mac_b(value.v2, value.v2, sums.v2);
  return sums;
}

// 1 / sqrt(mean square + eps), in every lane.
static inline float64 inverse_root(float128 sums, float inverse_size, float eps) {
  const float64 total = v_f32_reduce_add(v_f32_add_b(sums.v1, sums.v2));
  return rsqrt(v_f32_add_b(v_f32_mul_b(total, inverse_size), eps));
}

// value * root * (weight + offset), rounded in between where round_before_weight is set.
static inline packed scaled(float128 value, float64 root, packed weight, float offset,
                            int round_before_weight) {
  value.v1 = v_f32_mul_b(value.v1, root);
  value.v2 = v_f32_mul_b(value.v2, root);
  if (round_before_weight) value = rounded(value);
  float128 scale = widen(weight);
  scale.v1 = v_f32_add_b(scale.v1, offset);
  scale.v2 = v_f32_add_b(scale.v2, offset);
  return narrow(multiply(value, scale));
}

#endif  // VLLM_OPS_GAUDI_TPC_NORM_H_
