// SPDX-License-Identifier: Apache-2.0
// Launch shapes for Intel GPUs. Chosen by reasoning about Xe-HPG and Xe-HPC; not measured on one.
#pragma once

#include "dispatch/norm.h"

namespace vllm_ops::gpu {

struct Tuning {
  static constexpr int kElementwiseThreads = 256;
  static constexpr int kRotaryThreads = 256;
  static constexpr int kNormBlock = 128;

  // Up to a sub-group, one chunk a work-item. Beyond it two, so that twice the bytes are under way,
  // until the work-group is full.
  static int threads_per_row(int chunks) {
    if (chunks <= kSubGroup) return power_of_two(chunks, kSubGroup);
    return power_of_two((chunks + 1) / 2, kNormThreads);
  }
};

}  // namespace vllm_ops::gpu
