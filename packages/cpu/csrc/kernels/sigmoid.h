// SPDX-License-Identifier: Apache-2.0
// Products with a sigmoid.
//
// In fp32 and fp64 the denominator 1 + e^-s is kept as a two-term sum, and in fp32 so is the
// argument s: the exponential turns the rounding of s into s times that relative error, 20 ulp in
// the tails of gelu_tanh. In bf16 and fp16 all that would be lost, and the plain form, with the
// same roundings as eager torch, is what gives the same bits.
#pragma once

#include "math.h"

namespace vllm_ops {
namespace {

template <class T>
constexpr bool kHalf = sizeof(T) == 2;
template <class T>
constexpr bool kFloat = sizeof(T) == 4;

template <class T, class V>
VLLM_OPS_INLINE V silu(V x) {
  if constexpr (kHalf<T>) {
    return x / (exp_normal(-x) + 1.0f);
  } else {
    return divide(x, one_plus_exp(-x));
  }
}

// x * sigmoid(-minus_s)
template <class T, class V>
VLLM_OPS_INLINE V times_sigmoid_neg(V x, V minus_s) {
  if constexpr (kHalf<T>) {
    return x * (1.0f / (exp_normal(minus_s) + 1.0f));
  } else {
    return divide(x, one_plus_exp(minus_s));
  }
}

// A constant in two floats.
struct TwoFloats {
  float hi, lo;
  constexpr explicit TwoFloats(double c) : hi(float(c)), lo(float(c - double(float(c)))) {}
};

#if !defined(VLLM_OPS_FMA)
// f(x) in double, as a sum of two floats: without fma that is cheaper than exact float products.
template <class F>
VLLM_OPS_INLINE TwoSum<VF> in_double(VF x, F f) {
  const VD a = f(_mm_cvtps_pd(x)), b = f(_mm_cvtps_pd(_mm_movehl_ps(x, x)));
  const __m128 a_hi = _mm_cvtpd_ps(a), b_hi = _mm_cvtpd_ps(b);
  const VD a_lo = a - (VD)_mm_cvtps_pd(a_hi), b_lo = b - (VD)_mm_cvtps_pd(b_hi);
  return {_mm_movelh_ps(a_hi, b_hi), _mm_movelh_ps(_mm_cvtpd_ps(a_lo), _mm_cvtpd_ps(b_lo))};
}
#endif

// c * x
VLLM_OPS_INLINE TwoSum<VF> product(VF x, double c) {
#if defined(VLLM_OPS_FMA)
  const TwoFloats k(c);
  const VF hi = x * k.hi;
  return {hi, fma(x, k.hi, -hi) + x * k.lo};
#else
  return in_double(x, [c](VD v) VLLM_OPS_INLINE_LAMBDA { return v * c; });
#endif
}

// c * x * (1 + k x^2)
VLLM_OPS_INLINE TwoSum<VF> cubic(VF x, double c, double k) {
#if defined(VLLM_OPS_FMA)
  const TwoFloats kk(k);
  const VF square = x * x;
  const VF square_lo = fma(x, x, -square);
  const VF t = fma(square, kk.hi, splat<VF>(1.0f));
  const VF t_lo = fma(square, kk.hi, 1.0f - t) + fma(square_lo, kk.hi, square * kk.lo);
  const TwoSum<VF> v = product(x, c);
  const VF hi = v.hi * t;
  return {hi, fma(v.hi, t, -hi) + fma(v.hi, t_lo, v.lo * t)};
#else
  return in_double(x, [c, k](VD v) VLLM_OPS_INLINE_LAMBDA { return v * c * (v * v * k + 1.0); });
#endif
}

}  // namespace
}  // namespace vllm_ops
