// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding. Threads in x share a head, in y are heads, in z are tokens.
#pragma once

#include "angles.h"

namespace vllm_ops::gpu {

constexpr int kRotaryThreads = 256;

// A head in global memory; the fused norm has one in shared memory.
template <class T>
struct GlobalHead {
  const T* data;
  template <int N>
  VLLM_OPS_FN void load(int i, float (&v)[N]) const {
    load_values(data + i, v);
  }
};

// Work items of a head: the pairs, then what doesn't turn.
template <class T, bool kVectors>
VLLM_OPS_FN int turning_items(const RotaryArgs& args) {
  if constexpr (!kVectors) return args.rotary_dim / 2;
  return (args.neox ? args.rotary_dim / 2 : args.rotary_dim) / kChunk<T>;
}
template <class T, bool kVectors>
VLLM_OPS_FN int resting_items(const RotaryArgs& args) {
  const int rest = args.copy_rest ? args.head_size - args.rotary_dim : 0;
  return kVectors ? rest / kChunk<T> : rest;
}

template <int N>
VLLM_OPS_FN void turn(float (&first)[N], float (&second)[N], const float (&cos)[N],
                      const float (&sin)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float a = product(first[i], cos[i]) - product(second[i], sin[i]);
    second[i] = product(second[i], cos[i]) + product(first[i], sin[i]);
    first[i] = a;
  }
}

// NeoX: element i with i + half. N pairs from pair `pair`.
template <class T, int N, class Head, class Reader>
VLLM_OPS_FN void turn_halves(const Head& head, T* out, int pair, int half, const Reader& reader,
                             const AngleArgs& angles) {
  float first[N], second[N], cos[N], sin[N];
  head.load(pair, first);
  head.load(half + pair, second);
  reader.load(angles, pair, half, cos, sin);
  turn(first, second, cos, sin);
  store_values(out + pair, first);
  store_values(out + half + pair, second);
}

// GPT-J: element 2i with 2i + 1.
template <class T, int N, class Head, class Reader>
VLLM_OPS_FN void turn_neighbours(const Head& head, T* out, int pair, int half, const Reader& reader,
                                 const AngleArgs& angles) {
  float both[2 * N], first[N], second[N], cos[N], sin[N];
  head.load(2 * pair, both);
  reader.load(angles, pair, half, cos, sin);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    first[i] = both[2 * i];
    second[i] = both[2 * i + 1];
  }
  turn(first, second, cos, sin);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    both[2 * i] = first[i];
    both[2 * i + 1] = second[i];
  }
  store_values(out + 2 * pair, both);
}

// One head by `lanes` threads, of which this one is `lane`. In place, every thread reads what it
// overwrites before it does.
template <class T, bool kVectors, class Head, class Reader>
VLLM_OPS_FN void turn_head(const RotaryArgs& args, const Head& head, T* out, const Reader& reader,
                           int lane, int lanes) {
  constexpr int kWidth = kVectors ? kChunk<T> : 1;
  const int turning = turning_items<T, kVectors>(args);
  const int items = turning + resting_items<T, kVectors>(args);
  const int half = args.rotary_dim / 2;
  for (int item = lane; item < items; item += lanes) {
    if (item >= turning) {
      const int at = args.rotary_dim + (item - turning) * kWidth;
      float v[kWidth];
      head.load(at, v);
      store_values(out + at, v);
    } else if (args.neox) {
      turn_halves<T, kWidth>(head, out, item * kWidth, half, reader, args.angles);
    } else {
      constexpr int kPairs = kVectors ? kWidth / 2 : 1;
      turn_neighbours<T, kPairs>(head, out, item * kPairs, half, reader, args.angles);
    }
  }
}

// The beginning of head `index` (the query's heads, then the key's) of a token.
template <class T>
struct HeadAt {
  const T* x;
  T* out;
  VLLM_OPS_FN HeadAt(const RotaryArgs& args, int64_t token, int index) {
    if (index < args.query.count) {
      x = static_cast<const T*>(args.query.x) + row_offset(args.query.x_rows, token) +
          index * args.query.x_pitch;
      out = static_cast<T*>(args.query.out) + row_offset(args.query.out_rows, token) +
            index * args.query.out_pitch;
    } else {
      const int at = index - args.query.count;
      x = static_cast<const T*>(args.key.x) + row_offset(args.key.x_rows, token) +
          at * args.key.x_pitch;
      out = static_cast<T*>(args.key.out) + row_offset(args.key.out_rows, token) +
            at * args.key.out_pitch;
    }
  }
};

template <class T, Angles kSource, bool kVectors>
VLLM_OPS_KERNEL(kRotaryThreads)
rotary_kernel(const RotaryArgs args, const int64_t first) {
  const int heads = args.query.count + args.key.count;
  const int index = int(block_y()) * block_dim_y() + thread_y();
  const int64_t token = first + block_x() * block_dim_z() + thread_z();
  if (token >= args.tokens) return;
  AngleReader<kSource> reader;
  reader.begin(args.angles, token, args.tokens, args.rotary_dim);
  if (index >= heads) return;
  const HeadAt<T> at(args, token, index);
  turn_head<T, kVectors>(args, GlobalHead<T>{at.x}, at.out, reader, thread_x(), block_dim_x());
}

}  // namespace vllm_ops::gpu
