// SPDX-License-Identifier: Apache-2.0
// Launch shapes for NVIDIA GPUs. Chosen by reasoning about sm_80 to sm_100; not yet measured on
// one.
#pragma once

#include "dispatch/norm.h"

namespace vllm_ops::gpu {

struct Tuning {
  static constexpr int kElementwiseThreads = 256;
  static constexpr int kRotaryThreads = 256;
  static constexpr int kNormBlock = 128;

  // Up to a warp, one chunk a thread. Beyond it two, so that twice the bytes are under way, until
  // the block is full.
  static int threads_per_row(int chunks) {
    if (chunks <= 32) return power_of_two(chunks, 32);
    return power_of_two((chunks + 1) / 2, kNormThreads);
  }
};

}  // namespace vllm_ops::gpu
