// SPDX-License-Identifier: Apache-2.0
// exp and its relatives on vectors of float or double.
//
// Polynomials are minimax fits made for these intervals (Remez, 200-bit arithmetic); the error
// named beside each is that of the fit. Infinities and NaN travel as in the scalar functions.
#pragma once

#include "simd.h"

namespace vllm_ops {
namespace {

template <class S>
struct ExpTraits;
template <>
struct ExpTraits<float> {
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kLn2Hi = 0x1.63p-1f;  // 9 bits: n * kLn2Hi is exact without fma
  static constexpr float kLn2Lo = -0x1.bd0106p-13f;
  static constexpr float kShift = 0x1.8p+23f;  // adding it rounds to an integer in the low bits
  static constexpr float kMax = 89.0f;         // above: infinity
  static constexpr float kMin = -104.0f;       // below: zero
  static constexpr int kMantissa = 23;
  static constexpr int kBias = 127;
};
template <>
struct ExpTraits<double> {
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2Hi = 0x1.62e42fefap-1;  // 35 bits
  static constexpr double kLn2Lo = 0x1.cf79abc9e3b3ap-40;
  static constexpr double kShift = 0x1.8p+52;
  static constexpr double kMax = 710.0;
  static constexpr double kMin = -746.0;
  static constexpr int kMantissa = 52;
  static constexpr int kBias = 1023;
};

// (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2. Relative to e^r: 2^-28 in float, 2^-63 in double.
VLLM_OPS_INLINE VF expm1_tail(VF r) {
  VF q = fma(splat<VF>(1.381490962e-03f), r, 8.368674666e-03f);
  q = fma(q, r, 4.166837782e-02f);
  q = fma(q, r, 1.666652113e-01f);
  return fma(q, r, 4.999999404e-01f);
}
VLLM_OPS_INLINE VD expm1_tail(VD r) {
  VD q = fma(splat<VD>(2.0826874244207146e-09), r, 2.5111879047997044e-08);
  q = fma(q, r, 2.7557579684617626e-07);
  q = fma(q, r, 2.755723539608573e-06);
  q = fma(q, r, 2.4801586931885643e-05);
  q = fma(q, r, 0.0001984126989573978);
  q = fma(q, r, 0.0013888888889110375);
  q = fma(q, r, 0.008333333333317356);
  q = fma(q, r, 0.041666666666666116);
  q = fma(q, r, 0.16666666666666682);
  return fma(q, r, 0.5);
}

// x = n ln2 + r. x must lie in [kMin, kMax] or be NaN.
template <class V>
struct Reduced {
  V r;
  V nf;         // n as a number
  IntVec<V> n;  // n as an integer, garbage for NaN
};
template <class V>
VLLM_OPS_INLINE Reduced<V> reduce_ln2(V x) {
  using T = ExpTraits<Scalar<V>>;
  const V shifted = fma(x, T::kLog2E, splat<V>(T::kShift));
  const V nf = shifted - T::kShift;
  V r = fma(nf, -T::kLn2Hi, x);
  r = fma(nf, -T::kLn2Lo, r);
  return {r, nf, (IntVec<V>)shifted - (IntVec<V>)splat<V>(T::kShift)};
}

// 2^n for n in [-bias + 1, bias].
template <class V>
VLLM_OPS_INLINE V pow2i(IntVec<V> n) {
  using T = ExpTraits<Scalar<V>>;
  return (V)((n + T::kBias) << T::kMantissa);
}

// m * 2^n, for results that overflow or become subnormal too.
template <class V>
VLLM_OPS_INLINE V scale_pow2(V m, const Reduced<V>& k) {
#if defined(VLLM_OPS_AVX512)
  if constexpr (sizeof(Scalar<V>) == 4) {
    return _mm512_scalef_ps(m, k.nf);
  } else {
    return _mm512_scalef_pd(m, k.nf);
  }
#else
  const IntVec<V> half = k.n >> 1;
  return m * pow2i<V>(half) * pow2i<V>(k.n - half);
#endif
}

template <class V>
VLLM_OPS_INLINE V clamp_exp(V x) {
  using T = ExpTraits<Scalar<V>>;
  x = min_or_second(splat<V>(T::kMax), x);
  return max_or_second(splat<V>(T::kMin), x);
}

// e^x within 0.8 ulp.
template <class V>
VLLM_OPS_INLINE V exp(V x) {
  const Reduced<V> k = reduce_ln2(clamp_exp(x));
  return scale_pow2(fma(k.r * k.r, expm1_tail(k.r), k.r) + Scalar<V>(1), k);
}

// e^(x + x_lo) for a sum with 1: what is below the smallest normal number may come out as that.
template <bool kHasLow, class V>
VLLM_OPS_INLINE V exp_normal_impl(V x, V x_lo) {
  using S = Scalar<V>;
#if defined(VLLM_OPS_AVX512)
  const V clamped = clamp_exp(x);
#else
  using T = ExpTraits<S>;
  V clamped = min_or_second(splat<V>(T::kMax), x);
  clamped = max_or_second(splat<V>(S(T::kBias - 1) / -T::kLog2E), clamped);
#endif
  Reduced<V> k = reduce_ln2(clamped);
  // Where x was clamped, x_lo may be anything.
  if constexpr (kHasLow) k.r = k.r + select(x == clamped, x_lo, V{});
  const V m = fma(k.r * k.r, expm1_tail(k.r), k.r) + S(1);
#if defined(VLLM_OPS_AVX512)
  return scale_pow2(m, k);
#else
  // Twice the mantissa and half the power, so that e^88.7 is not lost to an infinite 2^128.
  return (m + m) * pow2i<V>(k.n - 1);
#endif
}
template <class V>
VLLM_OPS_INLINE V exp_normal(V x) {
  return exp_normal_impl<false>(x, x);
}
template <class V>
VLLM_OPS_INLINE V exp_normal(V x, V x_lo) {
  return exp_normal_impl<true>(x, x_lo);
}

// A number as a sum of two, the second one far smaller.
template <class V>
struct TwoSum {
  V hi, lo;
};

// 1 + e as a sum, for e >= 0. The second part is meaningless if e is infinite.
template <class V>
VLLM_OPS_INLINE TwoSum<V> one_plus(V e) {
  const V one = splat<V>(1);
  const V hi = e + one;
  return {hi, min_or_second(e, one) - (hi - max_or_second(e, one))};
}

// 1 + e^x as a sum.
template <class V>
VLLM_OPS_INLINE TwoSum<V> one_plus_exp(V x) {
  return one_plus(exp_normal(x));
}
template <class V>
VLLM_OPS_INLINE TwoSum<V> one_plus_exp(const TwoSum<V>& x) {
  return one_plus(exp_normal(x.hi, x.lo));
}

// a / (d.hi + d.lo), close to correctly rounded.
template <class V>
VLLM_OPS_INLINE V divide(V a, const TwoSum<V>& d) {
#if defined(VLLM_OPS_FMA)
  const V inverse = Scalar<V>(1) / d.hi;
  const V q = a * inverse;
  const V rest = fma(-q, d.lo, fma(-q, d.hi, a));
  const V better = fma(rest, inverse, q);
  // The residue is NaN when a or d is infinite; q is right then.
  return select(rest == rest, better, q);
#else
  const V q = a / d.hi;
  const V better = q - q * (d.lo / d.hi);
  return select(better == better, better, q);
#endif
}

// e^x = 2^n (1 + t + t_lo), where t_lo holds what the rounding of r and t lost. Results are left in
// references: GCC moves the members of a returned struct of structs through memory.
template <class V>
VLLM_OPS_INLINE void expm1_parts(V x, V& t, V& t_lo, Reduced<V>& k) {
  using T = ExpTraits<Scalar<V>>;
  const V clamped = clamp_exp(x);
  k = reduce_ln2(clamped);
  const V r_exact = fma(k.nf, -T::kLn2Hi, clamped);
  const V r_lo = fma(k.nf, -T::kLn2Lo, r_exact - k.r);
  const V p = fma(k.r * k.r, expm1_tail(k.r), r_lo);
  t = k.r + p;
  t_lo = p - (t - k.r);
}

// e^x - 1 within 0.6 ulp, as 2^n t + (2^n - 1). Half of it is computed and doubled, so that the
// largest finite results survive.
template <class V>
VLLM_OPS_INLINE V expm1(V x) {
  V t, t_lo;
  Reduced<V> k;
  expm1_parts(x, t, t_lo, k);
  k.nf = k.nf - Scalar<V>(1);
  k.n = k.n - 1;
  const V half = scale_pow2(splat<V>(1), k);
  const V sum = fma(t_lo, half, fma(t, half, half - Scalar<V>(0.5)));
  return sum + sum;
}

// e^x - 1 - x, in the order in which the large terms cancel exactly.
template <class V>
VLLM_OPS_INLINE V expm1_minus(V x) {
  V t, t_lo;
  Reduced<V> k;
  expm1_parts(x, t, t_lo, k);
  const V power = scale_pow2(splat<V>(1), k);
  return ((power - Scalar<V>(1) - x) + t * power) + t_lo * power;
}

}  // namespace
}  // namespace vllm_ops
