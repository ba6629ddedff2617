// SPDX-License-Identifier: Apache-2.0
// Loads, stores and roundings: storage dtypes to and from the accumulation type.
#pragma once

#include "simd.h"

namespace vllm_ops {
namespace {

// Storage types of the 16-bit dtypes: bits only, no arithmetic.
//
// A block of BF16EvenOdd holds the even elements in one vector and the odd ones in the other, which
// saves the shuffles of loads and stores, a sixth of rms_norm; it is for kernels in which all
// operands are of that type. The other types keep the order.
//
// BF16 and BF16EvenOdd are for results of bfloat16 inputs alone, BF16Checked for results that an
// fp32 weight or table had a part in. Rounding adds to the bits below the upper half, and a NaN
// with ones in all of them would carry over into zero. A NaN that came from a bfloat16 value, or
// that the CPU made, has zeros there; one from fp32 data can have anything (memory filled with 0xff
// is such a NaN). Testing for NaN costs a quarter of rms_norm.
struct BF16 {
  uint16_t bits;
};
struct BF16EvenOdd {
  uint16_t bits;
};
struct BF16Checked {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// The type a dtype is computed in.
template <class T>
struct AccOf {
  using S = float;
};
template <>
struct AccOf<double> {
  using S = double;
};
template <class T>
using Acc = typename AccOf<T>::S;

typedef uint16_t VH __attribute__((vector_size(kVecBytes)));          // a block of 16-bit values
typedef uint16_t VHHalf __attribute__((vector_size(kVecBytes / 2)));  // a vector of them
typedef uint16_t VHu __attribute__((vector_size(kVecBytes), aligned(1), may_alias));
typedef uint32_t VUu __attribute__((vector_size(kVecBytes), aligned(1), may_alias));

template <class T>
struct DTypeTag {};

// ---- 16-bit patterns to and from two vectors of 32-bit lanes, lane order kept ----

VLLM_OPS_INLINE Block<float> as_float(VU lo, VU hi) { return {(VF)lo, (VF)hi}; }

VLLM_OPS_INLINE void widen16(const void* p, VU& lo, VU& hi) {
#if defined(VLLM_OPS_AVX512)
  lo = (VU)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  hi = (VU)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p + 1));
#elif defined(VLLM_OPS_AVX2)
  lo = (VU)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  hi = (VU)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p + 1));
#elif defined(__x86_64__)
  const __m128i v = _mm_loadu_si128((const __m128i*)p);
  lo = (VU)_mm_unpacklo_epi16(v, _mm_setzero_si128());
  hi = (VU)_mm_unpackhi_epi16(v, _mm_setzero_si128());
#else
  const VH v = *(const VHu*)p;
  lo = VU{v[0], v[1], v[2], v[3]};
  hi = VU{v[4], v[5], v[6], v[7]};
#endif
}

// Values must fit in 16 bits.
VLLM_OPS_INLINE void narrow16(void* p, VU lo, VU hi) {
#if defined(VLLM_OPS_AVX512)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16((__m512i)lo));
  _mm256_storeu_si256((__m256i*)p + 1, _mm512_cvtepi32_epi16((__m512i)hi));
#elif defined(VLLM_OPS_AVX2)
  const __m256i v = _mm256_packus_epi32((__m256i)lo, (__m256i)hi);
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(v, 0xd8));
#elif defined(__x86_64__)
  // SSE2 packs signed words only: sign-extend bit 15 first.
  const __m128i a = _mm_srai_epi32(_mm_slli_epi32((__m128i)lo, 16), 16);
  const __m128i b = _mm_srai_epi32(_mm_slli_epi32((__m128i)hi, 16), 16);
  _mm_storeu_si128((__m128i*)p, _mm_packs_epi32(a, b));
#else
  *(VHu*)p = (VH)__builtin_shufflevector((VH)lo, (VH)hi, 0, 2, 4, 6, 8, 10, 12, 14);
#endif
}

// The upper halves of the lanes.
VLLM_OPS_INLINE void narrow16_upper(void* p, VU lo, VU hi) {
#if defined(VLLM_OPS_AVX512)
  *(VHu*)p =
      __builtin_shufflevector((VH)lo, (VH)hi, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                              31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
#elif defined(VLLM_OPS_AVX2)
  const __m256i v = _mm256_packus_epi32((__m256i)(lo >> 16), (__m256i)(hi >> 16));
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(v, 0xd8));
#elif defined(__x86_64__)
  const __m128i v =
      _mm_packs_epi32(_mm_srai_epi32((__m128i)lo, 16), _mm_srai_epi32((__m128i)hi, 16));
  _mm_storeu_si128((__m128i*)p, v);
#else
  *(VHu*)p = (VH)__builtin_shufflevector((VH)lo, (VH)hi, 1, 3, 5, 7, 9, 11, 13, 15);
#endif
}

// ---- bfloat16 ----

// The bits of f rounded to bfloat16 (nearest even) in the upper half, garbage below.
VLLM_OPS_INLINE VU bf16_round_bits(VF f, DTypeTag<BF16>) {
  const VU u = (VU)f;
  return u + (0x7fffu + ((u >> 16) & 1u));
}
VLLM_OPS_INLINE VU bf16_round_bits(VF f, DTypeTag<BF16EvenOdd>) {
  return bf16_round_bits(f, DTypeTag<BF16>{});
}
VLLM_OPS_INLINE VU bf16_round_bits(VF f, DTypeTag<BF16Checked>) {
  const VU r = bf16_round_bits(f, DTypeTag<BF16>{});
  return (VU)(f == f ? (VI)r : (VI)(VU{} + 0x7fc00000u));
}

// The upper halves of `even` and `odd`, interleaved.
VLLM_OPS_INLINE void merge16_upper(void* p, VU even, VU odd) {
#if defined(VLLM_OPS_AVX512)
  _mm512_storeu_si512(p, _mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)(even >> 16), (__m512i)odd));
#elif defined(VLLM_OPS_AVX2)
  _mm256_storeu_si256((__m256i*)p, _mm256_blend_epi16((__m256i)(even >> 16), (__m256i)odd, 0xaa));
#else
  *(VUu*)p = (even >> 16) | (odd & 0xffff0000u);
#endif
}

// ---- float16 in integer arithmetic, where there is no instruction for it ----

VLLM_OPS_INLINE VF f16_to_float_bits(VU h) {
  const VU mag = (h & 0x7fffu) << 13;
  // Multiplying by 2^112 rebiases normal and subnormal numbers alike, exactly. Infinity and NaN
  // then only lack the rest of the exponent's ones.
  const VU scaled = (VU)((VF)mag * 0x1p112f);
  const VU special = (VU)((VI)mag >= 0x0f800000) & 0x7f800000u;
  return (VF)(scaled | special | ((h & 0x8000u) << 16));
}

// |f| with everything that rounds to infinity, and NaN, made 65536.
VLLM_OPS_INLINE VF f16_clamp(VF f) {
  return min_or_second((VF)((VU)f & 0x7fffffffu), splat<VF>(65536.0f));
}

VLLM_OPS_INLINE VU float_to_f16_bits(VF f) {
  const VF clamped = f16_clamp(f);
  const VU mag = (VU)clamped;
  // Normal result: rebias and round to nearest even on the 13 bits that go.
  const VU normal = (mag + (VU{} + 0xc8000fffu) + ((mag >> 13) & 1u)) >> 13;
  // Subnormal or zero result: adding 0.5 puts the wanted bits at the bottom, rounded by the FPU.
  const VU sub = (VU)(clamped + 0.5f) - 0x3f000000u;
  const VU r = (VU)((VI)mag < 0x38800000 ? (VI)sub : (VI)normal);
  return r | ((VU)(f != f) & 0x7e00u) | (((VU)f >> 16) & 0x8000u);
}

// The same rounding without leaving float.
VLLM_OPS_INLINE VF round_to_f16_bits(VF f) {
  const VF clamped = f16_clamp(f);
  const VU mag = (VU)clamped;
  const VU normal = (mag + (0xfffu + ((mag >> 13) & 1u))) & 0xffffe000u;
  const VU sub = (VU)((clamped + 0.5f) - 0.5f);
  VU r = (VU)((VI)mag < 0x38800000 ? (VI)sub : (VI)normal);
  r = r | ((VU)((VI)r >= 0x47800000) & 0x7f800000u) | ((VU)(f != f) & 0x7fc00000u);
  return (VF)(r | ((VU)f & 0x80000000u));
}

// ---- load and store one block ----

template <class S>
VLLM_OPS_INLINE Vec<S> load_vec(const S* p) {
  return *(const typename VecTypes<S>::Vu*)p;
}
template <class S>
VLLM_OPS_INLINE void store_vec(S* p, Vec<S> v) {
  *(typename VecTypes<S>::Vu*)p = v;
}

template <class S>
VLLM_OPS_INLINE Block<S> load(const S* p) {
  return {load_vec<S>(p), load_vec<S>(p + kLanes<S>)};
}
VLLM_OPS_INLINE Block<float> load(const BF16* p) {
  VU lo, hi;
  widen16(p, lo, hi);
  return as_float(lo << 16, hi << 16);
}
VLLM_OPS_INLINE Block<float> load(const BF16EvenOdd* p) {
  const VU v = *(const VUu*)p;
  return as_float(v << 16, v & 0xffff0000u);
}
VLLM_OPS_INLINE Block<float> load(const BF16Checked* p) {
  return load(reinterpret_cast<const BF16*>(p));
}
VLLM_OPS_INLINE Block<float> load(const F16* p) {
#if defined(VLLM_OPS_AVX512)
  return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)),
          _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p + 1))};
#elif defined(VLLM_OPS_AVX2)
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p + 1))};
#elif defined(__aarch64__)
  const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16((const uint16_t*)p));
  return {(VF)vcvt_f32_f16(vget_low_f16(h)), (VF)vcvt_high_f32_f16(h)};
#else
  VU lo, hi;
  widen16(p, lo, hi);
  return {f16_to_float_bits(lo), f16_to_float_bits(hi)};
#endif
}

template <class S>
VLLM_OPS_INLINE void store(S* p, const Block<S>& v) {
  store_vec<S>(p, v.a);
  store_vec<S>(p + kLanes<S>, v.b);
}
VLLM_OPS_INLINE void store(BF16* p, const Block<float>& v) {
  constexpr DTypeTag<BF16> tag;
  narrow16_upper(p, bf16_round_bits(v.a, tag), bf16_round_bits(v.b, tag));
}
VLLM_OPS_INLINE void store(BF16EvenOdd* p, const Block<float>& v) {
  constexpr DTypeTag<BF16EvenOdd> tag;
  merge16_upper(p, bf16_round_bits(v.a, tag), bf16_round_bits(v.b, tag));
}
VLLM_OPS_INLINE void store(BF16Checked* p, const Block<float>& v) {
  constexpr DTypeTag<BF16Checked> tag;
  narrow16_upper(p, bf16_round_bits(v.a, tag), bf16_round_bits(v.b, tag));
}
VLLM_OPS_INLINE void store(F16* p, const Block<float>& v) {
#if defined(VLLM_OPS_AVX512)
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
  _mm256_storeu_si256((__m256i*)p + 1, _mm512_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
#elif defined(VLLM_OPS_AVX2)
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i*)p + 1, _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
  const float16x8_t h = vcvt_high_f16_f32(vcvt_f16_f32((float32x4_t)v.a), (float32x4_t)v.b);
  vst1q_u16((uint16_t*)p, vreinterpretq_u16_f16(h));
#else
  narrow16(p, float_to_f16_bits(v.a), float_to_f16_bits(v.b));
#endif
}

// A store of what has been rounded to the dtype already.
template <class T>
VLLM_OPS_INLINE void store_rounded(T* p, const Block<Acc<T>>& v) {
  store(p, v);
}
VLLM_OPS_INLINE void store_rounded(BF16EvenOdd* p, const Block<float>& v) {
  merge16_upper(p, (VU)v.a, (VU)v.b);
}
VLLM_OPS_INLINE void store_rounded(BF16Checked* p, const Block<float>& v) {
  narrow16_upper(p, (VU)v.a, (VU)v.b);
}

// ---- the first n < kBlock elements; the rest of the block reads as zero ----

template <class T>
VLLM_OPS_INLINE auto load_n(const T* p, int64_t n) {
  T buf[kBlock<Acc<T>>] = {};
  for (int64_t i = 0; i < n; ++i) buf[i] = p[i];
  return load(buf);
}
template <class T>
VLLM_OPS_INLINE void store_n(T* p, const Block<Acc<T>>& v, int64_t n) {
  T buf[kBlock<Acc<T>>];
  store(buf, v);
  for (int64_t i = 0; i < n; ++i) p[i] = buf[i];
}

// ---- rounding to a storage dtype and back, in registers ----

VLLM_OPS_INLINE VF round_to(VF v, DTypeTag<float>) { return v; }
VLLM_OPS_INLINE VD round_to(VD v, DTypeTag<double>) { return v; }
VLLM_OPS_INLINE VF round_to(VF v, DTypeTag<BF16> tag) {
  return (VF)(bf16_round_bits(v, tag) & 0xffff0000u);
}
VLLM_OPS_INLINE VF round_to(VF v, DTypeTag<BF16EvenOdd> tag) {
  return (VF)(bf16_round_bits(v, tag) & 0xffff0000u);
}
VLLM_OPS_INLINE VF round_to(VF v, DTypeTag<BF16Checked> tag) {
  return (VF)(bf16_round_bits(v, tag) & 0xffff0000u);
}
VLLM_OPS_INLINE VF round_to(VF v, DTypeTag<F16>) {
#if defined(VLLM_OPS_AVX512)
  return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(VLLM_OPS_AVX2)
  return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
  return (VF)vcvt_f32_f16(vcvt_f16_f32((float32x4_t)v));
#else
  return round_to_f16_bits(v);
#endif
}
template <class T, class V>
VLLM_OPS_INLINE V round_to(V v) {
  return round_to(v, DTypeTag<T>{});
}

}  // namespace
}  // namespace vllm_ops
