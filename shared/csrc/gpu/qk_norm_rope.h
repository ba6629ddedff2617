// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope: rms_norm of each head, rounded, then the rotation, without the trip through memory.
// Both halves are the code of the unfused pair, so the results are the same bits. Threads in x
// share a head, in y are heads; a head that needs more than one warp takes the unfused pair
// instead.
#pragma once

#include "rms_norm.h"
#include "rotary.h"

namespace vllm_ops::gpu {

constexpr int kQkThreads = 128;
// A thread holds at most this many chunks of a normed head in shared memory.
constexpr int kQkChunks = 4;

template <class T>
struct SharedHead {
  const Shared<T>& data;
  int begin;
  template <int N>
  VLLM_OPS_FN void load(int i, float (&v)[N]) const {
    if constexpr (N == kChunk<T>) {
      Lanes<T>::unpack(data.load16(begin + i), v);
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = widen(data.load(begin + i + j));
    }
  }
};

template <class T, bool kVectors>
VLLM_OPS_KERNEL(kQkThreads)
qk_norm_rope_kernel(const QkNormRopeArgs args, const int64_t first) {
  constexpr int kWidth = kChunk<T>;
  VLLM_OPS_SHARED(T, normed, kQkThreads * kQkChunks * kWidth);
  const RotaryArgs& rotary = args.rotary;
  const int heads = rotary.query.count + rotary.key.count;
  const int threads = block_dim_x(), lane = thread_x();
  const int index = int(block_y()) * block_dim_y() + thread_y();
  const int chunks = index < heads ? chunks_of(rotary.head_size, kWidth) : 0;
  const int begin = thread_y() * chunks_of(rotary.head_size, kWidth) * kWidth;
  const bool is_key = index >= rotary.query.count;
  const RmsScale by{{is_key ? args.k_weight.data : args.q_weight.data,
                     is_key ? args.k_weight.dtype : args.q_weight.dtype},
                    args.weight_offset,
                    args.round_before_weight};
  const int64_t token = first + block_x();
  const HeadAt<T> at(rotary, token, index);
  float v[kWidth];
  float sum = 0.0f;
  for (int c = lane; c < chunks; c += threads) {
    load_chunk<T, kVectors>(at.x, c, rotary.head_size, v);
    sum = add_squares<T>(sum, v, c, rotary.head_size);
  }
  const float scale = inverse_rms(group_sum(sum, threads), rotary.head_size, args.eps);
  for (int c = lane; c < chunks; c += threads) {
    load_chunk<T, kVectors>(at.x, c, rotary.head_size, v);
    scale_chunk<T, kVectors>(v, scale, by, c, rotary.head_size);
    normed.store16(begin + c * kWidth, Lanes<T>::pack(v));
  }
  sync_block();
  if (index < heads) {
    AngleReader<Angles::kTable> reader;
    reader.begin(rotary.angles, token, rotary.tokens, rotary.rotary_dim);
    turn_head<T, kVectors>(rotary, SharedHead<T>{normed, begin}, at.out, reader, lane, threads);
  }
}

}  // namespace vllm_ops::gpu
