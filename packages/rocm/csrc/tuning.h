// SPDX-License-Identifier: Apache-2.0
// Launch shapes for AMD GPUs, wavefronts of 64 and 32. Chosen by reasoning; not yet measured on
// one.
#pragma once

#include "dispatch/norm.h"

namespace vllm_ops::gpu {

struct Tuning {
  static constexpr int kElementwiseThreads = 256;
  static constexpr int kRotaryThreads = 256;
  static constexpr int kNormBlock = 256;

  // Up to 32 threads, one chunk each, which both wavefront sizes sum without shared memory. Beyond
  // them four: a CDNA compute unit hides latency with loads under way rather than with wavefronts.
  static int threads_per_row(int chunks) {
    if (chunks <= 32) return power_of_two(chunks, 32);
    const int threads = power_of_two((chunks + 3) / 4, kNormThreads);
    return threads < 32 ? 32 : threads;
  }
};

}  // namespace vllm_ops::gpu
