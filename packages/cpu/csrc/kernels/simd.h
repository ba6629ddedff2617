// SPDX-License-Identifier: Apache-2.0
// A thin vector type on the compilers' vector extensions, sized by the tier.
//
// Included by kernel files only. Everything is in an anonymous namespace: these functions are
// compiled once per ISA tier, and with external linkage the linker would keep one copy for all of
// them, perhaps the AVX-512 one. For the same reason nothing of the C++ library is included.
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define VLLM_OPS_AVX512 1
#define VLLM_OPS_VEC_BYTES 64
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define VLLM_OPS_AVX2 1
#define VLLM_OPS_VEC_BYTES 32
#else
#define VLLM_OPS_VEC_BYTES 16
#endif

#if VLLM_OPS_VEC_BYTES > 16 || defined(__aarch64__)
#define VLLM_OPS_FMA 1  // fma() is one rounding; elsewhere it is two
#endif

#define VLLM_OPS_INLINE inline __attribute__((always_inline))
#define VLLM_OPS_INLINE_LAMBDA __attribute__((always_inline))

namespace vllm_ops {
namespace {

constexpr int kVecBytes = VLLM_OPS_VEC_BYTES;

template <class S>
struct VecTypes;
template <>
struct VecTypes<float> {
  typedef float V __attribute__((vector_size(kVecBytes)));
  typedef float Vu __attribute__((vector_size(kVecBytes), aligned(1), may_alias));
  typedef int32_t I __attribute__((vector_size(kVecBytes)));
  typedef uint32_t U __attribute__((vector_size(kVecBytes)));
};
template <>
struct VecTypes<double> {
  typedef double V __attribute__((vector_size(kVecBytes)));
  typedef double Vu __attribute__((vector_size(kVecBytes), aligned(1), may_alias));
  typedef int64_t I __attribute__((vector_size(kVecBytes)));
  typedef uint64_t U __attribute__((vector_size(kVecBytes)));
};

using VF = VecTypes<float>::V;
using VD = VecTypes<double>::V;
using VI = VecTypes<float>::I;
using VU = VecTypes<float>::U;
using VL = VecTypes<double>::I;

template <class S>
using Vec = typename VecTypes<S>::V;
template <class S>
constexpr int kLanes = kVecBytes / int(sizeof(S));

template <class V>
struct ScalarOf;
template <>
struct ScalarOf<VF> {
  using S = float;
};
template <>
struct ScalarOf<VD> {
  using S = double;
};
template <class V>
using Scalar = typename ScalarOf<V>::S;
template <class V>
using IntVec = typename VecTypes<Scalar<V>>::I;

// s - 0 is s for every s, signed zeros included, and folds into a broadcast.
template <class V>
VLLM_OPS_INLINE V splat(Scalar<V> s) {
  return s - V{};
}

// a * b + c with one rounding where the tier has the instruction.
VLLM_OPS_INLINE VF fma(VF a, VF b, VF c) {
#if defined(VLLM_OPS_AVX512)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(VLLM_OPS_AVX2)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return (VF)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
VLLM_OPS_INLINE VD fma(VD a, VD b, VD c) {
#if defined(VLLM_OPS_AVX512)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(VLLM_OPS_AVX2)
  return _mm256_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  return (VD)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
  return a * b + c;
#endif
}
template <class V>
VLLM_OPS_INLINE V fma(V a, Scalar<V> b, V c) {
  return fma(a, splat<V>(b), c);
}
template <class V>
VLLM_OPS_INLINE V fma(V a, V b, Scalar<V> c) {
  return fma(a, b, splat<V>(c));
}

template <class V>
VLLM_OPS_INLINE V select(IntVec<V> mask, V yes, V no) {
  return mask ? yes : no;
}
// Whether every lane is below the limit; NaN is not.
VLLM_OPS_INLINE bool all_below(VF v, float limit) {
#if defined(VLLM_OPS_AVX512)
  return _mm512_cmp_ps_mask(v, _mm512_set1_ps(limit), _CMP_LT_OQ) == 0xffff;
#elif defined(VLLM_OPS_AVX2)
  return _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(limit), _CMP_LT_OQ)) == 0xff;
#elif defined(__x86_64__)
  return _mm_movemask_ps(_mm_cmplt_ps(v, _mm_set1_ps(limit))) == 0xf;
#else
  return vminvq_u32(vcltq_f32((float32x4_t)v, vdupq_n_f32(limit))) != 0;
#endif
}
// a if a < b else b: a NaN on either side gives b. The x86 instructions do just that.
template <class V>
VLLM_OPS_INLINE V min_or_second(V a, V b) {
  return a < b ? a : b;
}
// a if a > b else b.
template <class V>
VLLM_OPS_INLINE V max_or_second(V a, V b) {
  return a > b ? a : b;
}
#if defined(__x86_64__)
// GCC makes a compare and a blend of the expressions above.
#if defined(VLLM_OPS_AVX512)
#define VLLM_OPS_X86(name, suffix) _mm512_##name##_##suffix
#elif defined(VLLM_OPS_AVX2)
#define VLLM_OPS_X86(name, suffix) _mm256_##name##_##suffix
#else
#define VLLM_OPS_X86(name, suffix) _mm_##name##_##suffix
#endif
VLLM_OPS_INLINE VF min_or_second(VF a, VF b) { return VLLM_OPS_X86(min, ps)(a, b); }
VLLM_OPS_INLINE VF max_or_second(VF a, VF b) { return VLLM_OPS_X86(max, ps)(a, b); }
VLLM_OPS_INLINE VD min_or_second(VD a, VD b) { return VLLM_OPS_X86(min, pd)(a, b); }
VLLM_OPS_INLINE VD max_or_second(VD a, VD b) { return VLLM_OPS_X86(max, pd)(a, b); }
#endif

// Two vectors: the unit of work. 16-bit dtypes fill one register with what widens to two, and two
// independent chains hide latency for the others.
template <class S>
struct Block {
  Vec<S> a, b;
};
template <class S>
constexpr int kBlock = 2 * kLanes<S>;

template <class S, class F>
VLLM_OPS_INLINE Block<S> map(const Block<S>& x, F f) {
  return {f(x.a), f(x.b)};
}
template <class S, class F>
VLLM_OPS_INLINE Block<S> map(const Block<S>& x, const Block<S>& y, F f) {
  return {f(x.a, y.a), f(x.b, y.b)};
}

// 0, 1, ..., n - 1 as a pack.
template <int... I>
struct Ints {};
template <int N, int... I>
struct CountingImpl : CountingImpl<N - 1, N - 1, I...> {};
template <int... I>
struct CountingImpl<0, I...> {
  using Type = Ints<I...>;
};
template <int N>
using Counting = typename CountingImpl<N>::Type;

// ---- interleaved pairs ----

template <class V, int... I>
VLLM_OPS_INLINE Block<Scalar<V>> deinterleave_impl(V a, V b, Ints<I...>) {
  return {__builtin_shufflevector(a, b, (2 * I)...), __builtin_shufflevector(a, b, (2 * I + 1)...)};
}
template <class V, int... I>
VLLM_OPS_INLINE Block<Scalar<V>> interleave_impl(V a, V b, Ints<I...>) {
  constexpr int n = sizeof...(I);
  return {__builtin_shufflevector(a, b, (I / 2 + (I % 2) * n)...),
          __builtin_shufflevector(a, b, (I / 2 + n / 2 + (I % 2) * n)...)};
}

// x0 x1 x2 x3 ... to the even elements and the odd elements, and back.
template <class S>
VLLM_OPS_INLINE Block<S> deinterleave(const Block<S>& x) {
  return deinterleave_impl(x.a, x.b, Counting<kLanes<S>>{});
}
template <class S>
VLLM_OPS_INLINE Block<S> interleave(const Block<S>& x) {
  return interleave_impl(x.a, x.b, Counting<kLanes<S>>{});
}

}  // namespace
}  // namespace vllm_ops
