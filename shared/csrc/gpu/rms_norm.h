// SPDX-License-Identifier: Apache-2.0
// rms_norm and fused_add_rms_norm. `threads` threads share a row, block_dim_x / threads rows a
// block. Chunk c of a row belongs to thread c % threads, in ascending order: the sum depends on the
// row's length alone.
#pragma once

#include "memory.h"
#include "reduce.h"

namespace vllm_ops::gpu {

constexpr int kNormThreads = 512;
// Chunks of a row that a thread keeps in registers between the passes: 16 registers, 32 with the
// residual.
constexpr int kKept = 4;

VLLM_OPS_FN int chunks_of(int cols, int chunk) { return (cols + chunk - 1) / chunk; }

// Adds the squares of those values of chunk `c` whose column is below `limit`.
template <class T>
VLLM_OPS_FN float add_squares(float sum, const float (&v)[kChunk<T>], int c, int limit) {
  const int begin = c * kChunk<T>;
#pragma unroll
  for (int i = 0; i < kChunk<T>; ++i) {
    if (begin + i < limit) sum = fmaf_(v[i], v[i], sum);
  }
  return sum;
}

// A row of zeros with an eps of 0 gives zeros, not NaN.
VLLM_OPS_FN float inverse_rms(float sum, int count, float eps) {
  const float square = sum / float(count) + eps;
  return square == 0.0f ? 0.0f : 1.0f / sqrtf_(square);
}

struct RmsScale {
  Param weight;
  float offset;
  bool round_before_weight;
};

// What becomes of chunk `c` once the row's scale is known; not yet rounded for the store.
template <class T, bool kVectors>
VLLM_OPS_FN void scale_chunk(float (&v)[kChunk<T>], float scale, const RmsScale& by, int c,
                             int cols) {
#pragma unroll
  for (int i = 0; i < kChunk<T>; ++i) v[i] *= scale;
  if (by.weight.data == nullptr) return;
  float w[kChunk<T>];
  load_param<T, kVectors>(by.weight, c * kChunk<T>, cols, w);
#pragma unroll
  for (int i = 0; i < kChunk<T>; ++i) {
    const float y = by.round_before_weight ? round_to<T>(v[i]) : v[i];
    v[i] = y * (w[i] + by.offset);
  }
}

template <class T, bool kAdd, bool kVectors, bool kKeep>
VLLM_OPS_KERNEL(kNormThreads)
rms_norm_kernel(const RmsNormArgs args, const int threads, const int64_t first) {
  constexpr int kWidth = kChunk<T>;
  const int group = thread_x() / threads, lane = thread_x() % threads;
  const int groups = block_dim_x() / threads;
  const RmsScale by{args.weight, args.weight_offset, args.round_before_weight};
  const int64_t row = first + block_x() * groups + group;
  // The threads of a row beyond the last do nothing but take part in the sum.
  const int chunks = row < args.rows ? chunks_of(args.cols, kWidth) : 0;
  const T* x = static_cast<const T*>(args.x) + row_offset(args.x_rows, row);
  T* out = static_cast<T*>(args.out) + row_offset(args.out_rows, row);
  const T* residual = nullptr;
  T* total = nullptr;
  if constexpr (kAdd) {
    residual = static_cast<const T*>(args.residual) + row_offset(args.residual_rows, row);
    total = static_cast<T*>(args.sum) + row_offset(args.sum_rows, row);
  }

  float sum = 0.0f;
  Words kept[kKept];
  if constexpr (kKeep) {
    Words other[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {  // all loads first, so that they overlap
      const int c = lane + k * threads;
      if (c < chunks) {
        kept[k] = load16(x + c * kWidth);
        if constexpr (kAdd) other[k] = load16(residual + c * kWidth);
      }
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int c = lane + k * threads;
      if (c < chunks) {
        float v[kWidth];
        Lanes<T>::unpack(kept[k], v);
        if constexpr (kAdd) {
          float r[kWidth];
          Lanes<T>::unpack(other[k], r);
#pragma unroll
          for (int i = 0; i < kWidth; ++i) v[i] += r[i];
          kept[k] = Lanes<T>::pack(v);
          store16(total + c * kWidth, kept[k]);
          Lanes<T>::unpack(kept[k], v);
        }
        sum = add_squares<T>(sum, v, c, args.variance_size);
      }
    }
  } else {
    for (int c = lane; c < chunks; c += threads) {
      float v[kWidth];
      load_chunk<T, kVectors>(x, c, args.cols, v);
      if constexpr (kAdd) {
        float r[kWidth];
        load_chunk<T, kVectors>(residual, c, args.cols, r);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[i] = round_to<T>(v[i] + r[i]);
        store_chunk<T, kVectors>(total, c, args.cols, v);
      }
      sum = add_squares<T>(sum, v, c, args.variance_size);
    }
  }
  const float scale = inverse_rms(group_sum(sum, threads), args.variance_size, args.eps);

  if constexpr (kKeep) {
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int c = lane + k * threads;
      if (c < chunks) {
        float v[kWidth];
        Lanes<T>::unpack(kept[k], v);
        scale_chunk<T, true>(v, scale, by, c, args.cols);
        store_values(out + c * kWidth, v);
      }
    }
  } else {
    // In place, `x` and `residual` are overwritten: each thread reads again only what it wrote.
    const T* again = kAdd ? total : x;
    for (int c = lane; c < chunks; c += threads) {
      float v[kWidth];
      load_chunk<T, kVectors>(again, c, args.cols, v);
      scale_chunk<T, kVectors>(v, scale, by, c, args.cols);
      store_chunk<T, kVectors>(out, c, args.cols, v);
    }
  }
}

}  // namespace vllm_ops::gpu
