// SPDX-License-Identifier: Apache-2.0
// Loading, widening, rounding and storing. A chunk is what one vector access moves: 16 bytes of T.
#pragma once

#include "platform.h"

namespace vllm_ops::gpu {

template <class T>
constexpr int kChunk = 16 / sizeof(T);

VLLM_OPS_FN float widen(float v) { return v; }
VLLM_OPS_FN float widen(Float64 v) { return float64_to_float(v); }
VLLM_OPS_FN float widen(Half v) { return half_to_float(v.bits); }
VLLM_OPS_FN float widen(BFloat16 v) { return bits_to_float(uint32_t(v.bits) << 16); }

template <class T>
VLLM_OPS_FN T narrow(float v);
template <>
VLLM_OPS_FN float narrow<float>(float v) {
  return v;
}
template <>
VLLM_OPS_FN Half narrow<Half>(float v) {
  return {float_to_half(v)};
}
template <>
VLLM_OPS_FN BFloat16 narrow<BFloat16>(float v) {
  return {float_to_bfloat16(v)};
}

template <class T>
VLLM_OPS_FN float round_to(float v) {
  return widen(narrow<T>(v));
}

template <class T>
struct Lanes;  // how the values of a chunk lie in its words
template <>
struct Lanes<float> {
  static VLLM_OPS_FN void unpack(const Words& words, float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = bits_to_float(words.w[i]);
  }
  static VLLM_OPS_FN Words pack(const float (&v)[4]) {
    Words words;
#pragma unroll
    for (int i = 0; i < 4; ++i) words.w[i] = float_to_bits(v[i]);
    return words;
  }
};
template <>
struct Lanes<Half> {
  static VLLM_OPS_FN void unpack(const Words& words, float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = half_to_float(uint16_t(words.w[i]));
      v[2 * i + 1] = half_to_float(uint16_t(words.w[i] >> 16));
    }
  }
  static VLLM_OPS_FN Words pack(const float (&v)[8]) {
    Words words;
#pragma unroll
    for (int i = 0; i < 4; ++i) words.w[i] = floats_to_half2(v[2 * i], v[2 * i + 1]);
    return words;
  }
};
template <>
struct Lanes<BFloat16> {
  static VLLM_OPS_FN void unpack(const Words& words, float (&v)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = bits_to_float(words.w[i] << 16);
      v[2 * i + 1] = bits_to_float(words.w[i] & 0xffff0000u);
    }
  }
  static VLLM_OPS_FN Words pack(const float (&v)[8]) {
    Words words;
#pragma unroll
    for (int i = 0; i < 4; ++i) words.w[i] = floats_to_bfloat162(v[2 * i], v[2 * i + 1]);
    return words;
  }
};

// N values at p: one access of 16 bytes for a whole chunk, else value by value.
template <class T, int N>
VLLM_OPS_FN void load_values(const T* p, float (&v)[N]) {
  if constexpr (N == kChunk<T>) {
    Lanes<T>::unpack(load16(p), v);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = widen(load1(p + i));
  }
}
template <class T, int N>
VLLM_OPS_FN void store_values(T* p, const float (&v)[N]) {
  if constexpr (N == kChunk<T>) {
    store16(p, Lanes<T>::pack(v));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) store1(p + i, narrow<T>(v[i]));
  }
}

// N values at p of which only the first `left` exist; zero for the others.
template <class T, int N>
VLLM_OPS_FN void load_existing(const T* p, int left, float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = i < left ? widen(load1(p + i)) : 0.0f;
}

// Chunk `c` of a row of `cols` values, zero beyond the end. Which thread owns which chunk, and so
// the order of a sum, is the same with vectors and without.
template <class T, bool kVectors>
VLLM_OPS_FN void load_chunk(const T* row, int c, int cols, float (&v)[kChunk<T>]) {
  const int begin = c * kChunk<T>;
  if constexpr (kVectors) {
    load_values(row + begin, v);
  } else {
    load_existing(row + begin, cols - begin, v);
  }
}
template <class T, bool kVectors>
VLLM_OPS_FN void store_chunk(T* row, int c, int cols, const float (&v)[kChunk<T>]) {
  const int begin = c * kChunk<T>;
  if constexpr (kVectors) {
    store_values(row + begin, v);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk<T>; ++i) {
      if (begin + i < cols) store1(row + begin + i, narrow<T>(v[i]));
    }
  }
}

// Values of a tensor whose dtype is only known at run time: one branch for all of them.
template <int N>
VLLM_OPS_FN void load_any(const void* data, DType dtype, int64_t begin, int left, float (&v)[N]) {
  switch (dtype) {
    case DType::kFloat32:
      return load_existing(static_cast<const float*>(data) + begin, left, v);
    case DType::kFloat16:
      return load_existing(static_cast<const Half*>(data) + begin, left, v);
    case DType::kBFloat16:
      return load_existing(static_cast<const BFloat16*>(data) + begin, left, v);
    default:
      return load_existing(static_cast<const Float64*>(data) + begin, left, v);
  }
}
VLLM_OPS_FN float load_one(const Param& param) {
  float v[1];
  load_any(param.data, param.dtype, 0, 1, v);
  return v[0];
}

// The dtype that T is.
template <class T>
constexpr DType kDType = DType::kFloat32;
template <>
inline constexpr DType kDType<Half> = DType::kFloat16;
template <>
inline constexpr DType kDType<BFloat16> = DType::kBFloat16;

// The chunk of a parameter that belongs to columns [begin, begin + kChunk<T>). With vectors its
// dtype is T or fp32; the branch is the same for all threads.
template <class T, bool kVectors>
VLLM_OPS_FN void load_param(const Param& param, int64_t begin, int64_t cols,
                            float (&v)[kChunk<T>]) {
  if constexpr (kVectors) {
    if (param.dtype == kDType<T>) {
      load_values(static_cast<const T*>(param.data) + begin, v);
      return;
    }
    const float* p = static_cast<const float*>(param.data) + begin;
#pragma unroll
    for (int half = 0; half < kChunk<T> / 4; ++half) {
      float part[4];
      load_values(p + 4 * half, part);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[4 * half + i] = part[i];
    }
  } else {
    load_any(param.data, param.dtype, begin, int(cols - begin), v);
  }
}

// Offsets are 64-bit throughout: rows times pitch passes 2^31 in real models. Rows are only divided
// where there are fewer than 2^31 (the binding copies what has more), because a 64-bit division is
// a function call with registers spilled around it.
VLLM_OPS_FN int64_t row_offset(const Rows& rows, int64_t row) {
  if (rows.dims == 1) return row * rows.stride[0];
  int64_t offset = 0;
#pragma unroll
  for (int d = Rows::kMaxDims - 1; d > 0; --d) {
    if (d < rows.dims) {
      const uint32_t outer = uint32_t(row) / uint32_t(rows.size[d]);
      offset += int64_t(uint32_t(row) - outer * uint32_t(rows.size[d])) * rows.stride[d];
      row = outer;
    }
  }
  return offset + row * rows.stride[0];
}

}  // namespace vllm_ops::gpu
