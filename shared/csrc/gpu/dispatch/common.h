// SPDX-License-Identifier: Apache-2.0
// From arguments to a kernel instantiation and a grid. A package's launch file includes this with
// its own `Tuning`:
//
//   kElementwiseThreads   threads of an elementwise block, at most gpu::kElementwiseThreads
//   kRotaryThreads        the same for rotary
//   kNormBlock            threads of a norm block where a row needs fewer
//   threads_per_row(n)    threads for a row of n chunks: a power of two, at most gpu::kNormThreads
#pragma once

#include "../platform.h"

namespace vllm_ops::gpu {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int power_of_two(int64_t at_least, int at_most) {
  int p = 1;
  while (p < at_least && p < at_most) p *= 2;
  return p;
}

// Calls run(T{}) with the storage type of a half or single precision dtype.
template <class Run>
void with_type(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::kFloat32:
      return run(float{});
    case DType::kFloat16:
      return run(Half{});
    default:
      return run(BFloat16{});
  }
}

inline unsigned capped(int64_t blocks) {
  return unsigned(blocks < max_blocks() ? blocks : max_blocks());
}

// Calls run(first, blocks) for as many launches as `count` items need at `per_block` a block;
// nearly always one. A loop in the kernel would keep every argument in registers across its passes.
template <class Run>
void in_launches(int64_t count, int64_t per_block, const Run& run) {
  const int64_t most = max_blocks() * per_block;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t items = count - first < most ? count - first : most;
    run(first, unsigned(ceil_div(items, per_block)));
  }
}

constexpr int kMaxGridY = 65535;
inline unsigned capped_y(int64_t blocks) {
  return unsigned(blocks < kMaxGridY ? blocks : kMaxGridY);
}

}  // namespace vllm_ops::gpu
