// SPDX-License-Identifier: Apache-2.0
// rms_norm_gated: a group of columns is what a row is in rms_norm.
#pragma once

#include "activation.h"
#include "rms_norm.h"

namespace vllm_ops::gpu {

// silu(gate), or nothing; a gate of another dtype than x has no vectors.
template <class T, bool kVectors>
VLLM_OPS_FN void load_gate(const GatedNormArgs& args, int64_t offset, int c,
                           float (&v)[kChunk<T>]) {
  if constexpr (kVectors) {
    load_values(static_cast<const T*>(args.gate) + offset + c * kChunk<T>, v);
  } else {
    const int begin = c * kChunk<T>;
    load_any(args.gate, args.gate_dtype, offset + begin, args.cols - begin, v);
  }
#pragma unroll
  for (int i = 0; i < kChunk<T>; ++i) v[i] = silu(v[i]);
}

template <class T, bool kVectors>
VLLM_OPS_KERNEL(kNormThreads)
rms_norm_gated_kernel(const GatedNormArgs args, const int threads, const int64_t first,
                      const int first_part) {
  constexpr int kWidth = kChunk<T>;
  const int group = thread_x() / threads, lane = thread_x() % threads;
  const int rows = block_dim_x() / threads;
  const bool gate_first = args.gate != nullptr && !args.norm_before_gate;
  const bool gate_last = args.gate != nullptr && args.norm_before_gate;
  const int64_t row = first + block_x() * rows + group;
  const int64_t part = first_part + block_y();
  const int chunks = row < args.rows ? chunks_of(args.cols, kWidth) : 0;
  const int64_t column = part * args.cols;  // where the group begins
  const T* x = static_cast<const T*>(args.x) + row_offset(args.x_rows, row) + column;
  const int64_t gate = row_offset(args.gate_rows, row) + column;
  T* out = static_cast<T*>(args.out) + row * args.groups * args.cols + column;

  float v[kWidth], g[kWidth];
  float sum = 0.0f;
  for (int c = lane; c < chunks; c += threads) {
    load_chunk<T, kVectors>(x, c, args.cols, v);
    if (gate_first) {
      load_gate<T, kVectors>(args, gate, c, g);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[i] *= g[i];
    }
    sum = add_squares<T>(sum, v, c, args.cols);
  }
  const float scale = inverse_rms(group_sum(sum, threads), args.cols, args.eps);

  for (int c = lane; c < chunks; c += threads) {  // from the cache: a group is small
    load_chunk<T, kVectors>(x, c, args.cols, v);
    if (args.gate != nullptr) load_gate<T, kVectors>(args, gate, c, g);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = (gate_first ? v[i] * g[i] : v[i]) * scale;
    if (args.weight.data != nullptr) {
      float w[kWidth];
      load_param<T, kVectors>(args.weight, column + c * kWidth, column + args.cols, w);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[i] *= w[i];
    }
    if (gate_last) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[i] *= g[i];
    }
    store_chunk<T, kVectors>(out, c, args.cols, v);
  }
}

}  // namespace vllm_ops::gpu
