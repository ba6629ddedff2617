// SPDX-License-Identifier: Apache-2.0
// layer_norm: the mean first, then the mean square of the differences, as eager torch does in
// effect; one pass over sum and sum of squares would cancel for rows with a large mean.
#pragma once

#include "rms_norm.h"

namespace vllm_ops::gpu {

template <class T>
VLLM_OPS_FN float add_values(float sum, const float (&v)[kChunk<T>]) {
#pragma unroll
  for (int i = 0; i < kChunk<T>; ++i) sum += v[i];  // zero beyond the end
  return sum;
}

template <class T>
VLLM_OPS_FN float add_deviations(float sum, const float (&v)[kChunk<T>], float mean, int c,
                                 int cols) {
  const int begin = c * kChunk<T>;
#pragma unroll
  for (int i = 0; i < kChunk<T>; ++i) {
    const float d = v[i] - mean;
    if (begin + i < cols) sum = fmaf_(d, d, sum);
  }
  return sum;
}

template <class T, bool kVectors>
VLLM_OPS_FN void normalise_chunk(float (&v)[kChunk<T>], float mean, float scale,
                                 const LayerNormArgs& args, int c) {
#pragma unroll
  for (int i = 0; i < kChunk<T>; ++i) v[i] = (v[i] - mean) * scale;
  float p[kChunk<T>];
  if (args.weight.data != nullptr) {
    load_param<T, kVectors>(args.weight, c * kChunk<T>, args.cols, p);
#pragma unroll
    for (int i = 0; i < kChunk<T>; ++i) v[i] *= p[i];
  }
  if (args.bias.data != nullptr) {
    load_param<T, kVectors>(args.bias, c * kChunk<T>, args.cols, p);
#pragma unroll
    for (int i = 0; i < kChunk<T>; ++i) v[i] += p[i];
  }
}

template <class T, bool kVectors, bool kKeep>
VLLM_OPS_KERNEL(kNormThreads)
layer_norm_kernel(const LayerNormArgs args, const int threads, const int64_t first) {
  constexpr int kWidth = kChunk<T>;
  const int group = thread_x() / threads, lane = thread_x() % threads;
  const int groups = block_dim_x() / threads;
  const int64_t row = first + block_x() * groups + group;
  const int chunks = row < args.rows ? chunks_of(args.cols, kWidth) : 0;
  const T* x = static_cast<const T*>(args.x) + row_offset(args.x_rows, row);
  T* out = static_cast<T*>(args.out) + row * args.cols;
  float v[kWidth];
  Words kept[kKept];

  float sum = 0.0f;
  if constexpr (kKeep) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int c = lane + k * threads;
      if (c < chunks) kept[k] = load16(x + c * kWidth);
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (lane + k * threads < chunks) {
        Lanes<T>::unpack(kept[k], v);
        sum = add_values<T>(sum, v);
      }
    }
  } else {
    for (int c = lane; c < chunks; c += threads) {
      load_chunk<T, kVectors>(x, c, args.cols, v);
      sum = add_values<T>(sum, v);
    }
  }
  const float mean = group_sum(sum, threads) / float(args.cols);

  sum = 0.0f;
  if constexpr (kKeep) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int c = lane + k * threads;
      if (c < chunks) {
        Lanes<T>::unpack(kept[k], v);
        sum = add_deviations<T>(sum, v, mean, c, args.cols);
      }
    }
  } else {
    for (int c = lane; c < chunks; c += threads) {
      load_chunk<T, kVectors>(x, c, args.cols, v);
      sum = add_deviations<T>(sum, v, mean, c, args.cols);
    }
  }
  const float scale = inverse_rms(group_sum(sum, threads), args.cols, args.eps);

  if constexpr (kKeep) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int c = lane + k * threads;
      if (c < chunks) {
        Lanes<T>::unpack(kept[k], v);
        normalise_chunk<T, true>(v, mean, scale, args, c);
        store_values(out + c * kWidth, v);
      }
    }
  } else {
    for (int c = lane; c < chunks; c += threads) {
      load_chunk<T, kVectors>(x, c, args.cols, v);
      normalise_chunk<T, kVectors>(v, mean, scale, args, c);
      store_chunk<T, kVectors>(out, c, args.cols, v);
    }
  }
}

}  // namespace vllm_ops::gpu
