// SPDX-License-Identifier: Apache-2.0
// The sum over a group of threads that share a row.
#pragma once

#include "platform.h"

namespace vllm_ops::gpu {

constexpr int kMaxWarps = 32;  // 1024 threads in warps of 32

// Sum of `v` over the `group` consecutive threads that this one belongs to; group is a power of
// two. All threads of the block must call. A tree within a warp, then the warps in order: the order
// depends on `group` alone.
VLLM_OPS_FN float group_sum(float v, int group) {
  const int warp = warp_size();
  for (int mask = (group < warp ? group : warp) / 2; mask > 0; mask /= 2) v += shfl_xor(v, mask);
  if (group > warp) {
    VLLM_OPS_SHARED(float, partial, kMaxWarps);
    const int thread = thread_x();
    if (thread % warp == 0) partial.store(thread / warp, v);
    sync_block();
    const int warps = group / warp, first = thread / group * warps;
    v = 0.0f;
    for (int i = 0; i < warps; ++i) v += partial.load(first + i);
    sync_block();  // `partial` is written again by the next sum
  }
  return v;
}

}  // namespace vllm_ops::gpu
