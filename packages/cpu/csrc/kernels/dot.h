// SPDX-License-Identifier: Apache-2.0
// Dot products of a few rows of x with a few rows of a 16-bit or 8-bit weight, in registers.
//
// One order of addition for every output, whatever the tile: lane j of an output's accumulator adds
// its products in ascending k, and sums() adds the lanes in a fixed tree. So a result does not
// depend on how many rows or channels were computed with it, and the tile is free to be what fits
// the registers.
#pragma once

#include "convert.h"

namespace vllm_ops {
namespace {

constexpr int kDotStep = kBlock<float>;  // elements of k per step
constexpr int kDotLanes = kLanes<float>;

#define VLLM_OPS_UNROLL _Pragma("GCC unroll 16")

// Keeps v in a register: GCC would rather load it again as the memory operand of every multiply
// that uses it, and then the loads are the bottleneck.
VLLM_OPS_INLINE void in_register(VF& v) {
#if defined(VLLM_OPS_AVX512)
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}

// The two vectors of a step. Which element goes to which lane is up to the loader: x and the weight
// pass through loaders of the same dtype, so the products pair up.

VLLM_OPS_INLINE VF first(const float* p) { return load_vec<float>(p); }
VLLM_OPS_INLINE VF second(const float* p) { return load_vec<float>(p + kDotLanes); }
VLLM_OPS_INLINE VF first(const F16* p) { return load(p).a; }
VLLM_OPS_INLINE VF second(const F16* p) { return load(p).b; }
// On x86 by unpacking, which leaves the ports of the multiplications alone.
VLLM_OPS_INLINE VF first(const BF16* p) {
#if defined(VLLM_OPS_AVX512)
  return (VF)_mm512_unpacklo_epi16(_mm512_setzero_si512(), _mm512_loadu_si512(p));
#elif defined(VLLM_OPS_AVX2)
  return (VF)_mm256_unpacklo_epi16(_mm256_setzero_si256(), _mm256_loadu_si256((const __m256i*)p));
#else
  return (VF)(*(const VUu*)p << 16);
#endif
}
VLLM_OPS_INLINE VF second(const BF16* p) {
#if defined(VLLM_OPS_AVX512)
  return (VF)_mm512_unpackhi_epi16(_mm512_setzero_si512(), _mm512_loadu_si512(p));
#elif defined(VLLM_OPS_AVX2)
  return (VF)_mm256_unpackhi_epi16(_mm256_setzero_si256(), _mm256_loadu_si256((const __m256i*)p));
#else
  return (VF)(*(const VUu*)p & 0xffff0000u);
#endif
}

// The bits of an int8 weight. Its elements keep their order, whatever dtype x has.
struct I8 {
  int8_t value;
};
VLLM_OPS_INLINE VF widen8(const I8* p) {
#if defined(VLLM_OPS_AVX512)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
#elif defined(VLLM_OPS_AVX2)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
#else
  typedef int8_t V4 __attribute__((vector_size(4), aligned(1), may_alias));
  return __builtin_convertvector(*(const V4*)p, VF);
#endif
}
VLLM_OPS_INLINE VF first(const I8* p) { return widen8(p); }
VLLM_OPS_INLINE VF second(const I8* p) { return widen8(p + kDotLanes); }

// acc[m][n] += x[m] . w[n] over one step at offset i.
template <int MR, int NR, class T>
VLLM_OPS_INLINE void dot_step(const T* w, int64_t w_stride, const float* x, int64_t x_stride,
                              int64_t i, VF (&acc)[MR][NR]) {
  if constexpr (MR == 1) {
    VF a = first(x + i), b = second(x + i);
    in_register(a);
    in_register(b);
    VLLM_OPS_UNROLL
    for (int n = 0; n < NR; ++n) {
      acc[0][n] = fma(a, first(w + n * w_stride + i), acc[0][n]);
      acc[0][n] = fma(b, second(w + n * w_stride + i), acc[0][n]);
    }
  } else {
    VLLM_OPS_UNROLL
    for (int half = 0; half < 2; ++half) {
      VF b[NR];
      VLLM_OPS_UNROLL
      for (int n = 0; n < NR; ++n) {
        b[n] = half == 0 ? first(w + n * w_stride + i) : second(w + n * w_stride + i);
        in_register(b[n]);
      }
      VLLM_OPS_UNROLL
      for (int m = 0; m < MR; ++m) {
        VF a = half == 0 ? first(x + m * x_stride + i) : second(x + m * x_stride + i);
        if (NR > 1) in_register(a);
        VLLM_OPS_UNROLL
        for (int n = 0; n < NR; ++n) acc[m][n] = fma(a, b[n], acc[m][n]);
      }
    }
  }
}

// `k` is a multiple of kDotStep. `ahead` is where the weights of later lie, from the ones here:
// without being asked, hardware fetches too little of rows that are read in short pieces (one
// thread at 4096 x 4096 in bf16: 1 row 0.87 ms, with this 0.53; 4 rows 1.75 and 1.22).
template <int MR, int NR, class T>
VLLM_OPS_INLINE void dot_tile(const T* w, int64_t w_stride, const float* x, int64_t x_stride,
                              int64_t k, int64_t ahead, VF (&acc)[MR][NR]) {
  if constexpr (sizeof(T) == sizeof(float)) {
    for (int64_t i = 0; i < k; i += kDotStep) dot_step(w, w_stride, x, x_stride, i, acc);
  } else {
    constexpr int steps = kDotStep * sizeof(T) < 64 ? 64 / (kDotStep * sizeof(T)) : 1;
    constexpr int64_t line = steps * kDotStep;
    int64_t i = 0;
    for (; i + line <= k; i += line) {
      VLLM_OPS_UNROLL
      for (int n = 0; n < NR; ++n) __builtin_prefetch(w + n * w_stride + i + ahead);
      VLLM_OPS_UNROLL
      for (int s = 0; s < steps; ++s) dot_step(w, w_stride, x, x_stride, i + s * kDotStep, acc);
    }
    for (; i < k; i += kDotStep) dot_step(w, w_stride, x, x_stride, i, acc);
  }
}

// ---- the lanes of several accumulators, added ----

// Half of the elements of u and v, in groups of G: the lower (H = 0) or the upper half of every
// 128-bit part where groups fit into one, which is an unpack instruction, else of the vector.
template <int G, int H, int... I>
VLLM_OPS_INLINE VF interleave_half(VF u, VF v, Ints<I...>) {
  constexpr int n = sizeof...(I);
  constexpr int part = G < 4 ? 4 : n;
  return __builtin_shufflevector(
      u, v,
      (I / part * part + H * (part / 2) + I % part / G / 2 * G + I % G + I % part / G % 2 * n)...);
}
// v[0..N) to one vector, whose lane j holds lanes of v[j % N] added up.
template <int N>
VLLM_OPS_INLINE VF sums(const VF* v) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    const VF lower = sums<N / 2>(v), upper = sums<N / 2>(v + N / 2);
    return interleave_half<N / 2, 0>(lower, upper, Counting<kDotLanes>{}) +
           interleave_half<N / 2, 1>(lower, upper, Counting<kDotLanes>{});
  }
}

}  // namespace
}  // namespace vllm_ops
