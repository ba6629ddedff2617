// SPDX-License-Identifier: Apache-2.0
// GELU by the normal distribution function.
//
// gelu(x) = x Phi(x) = max(x, 0) - z Phi(-z) with z = |x|: so the negative side keeps its relative
// precision, which 1 + erf loses below -4. An element's formula depends on the element alone; a
// block in which no element needs the one for the tail skips that.
#pragma once

#include "convert.h"
#include "math.h"

extern "C" double erfc(double);

namespace vllm_ops {
namespace {

// Above this the near form's exponent is so large that its rounding would be a greater error than
// that of erfc in fp32. Of standard normal values one block of 32 in 180 has one there.
#if defined(VLLM_OPS_FMA)
constexpr float kFar = 3.75f;
#else
constexpr float kFar = 3.25f;
#endif

// bfloat16 keeps 8 bits: an error of 2^-23 before its rounding moves 3 elements in 100,000 by an
// ulp.
template <class T>
constexpr bool kBrief = false;
template <>
constexpr bool kBrief<BF16EvenOdd> = true;

// c(z) of normal_tail_near, as a tree: as a chain it would be latency that limits the kernel.
// Fit errors z^2 c(z): 3e-9; brief, 5e-8.
template <class T>
VLLM_OPS_INLINE VF curve(VF z) {
  const VF s = z * z;
  VF c01, c23, c45, c67;
  if constexpr (kBrief<T>) {
    c01 = fma(splat<VF>(-5.245443434e-02f), z, -4.592186511e-01f);
    c23 = fma(splat<VF>(-3.345054211e-05f), z, 6.975520402e-03f);
    c45 = fma(splat<VF>(6.558818859e-05f), z, -2.556735708e-04f);
    c67 = fma(splat<VF>(4.041094712e-07f), z, -7.968622413e-06f);
  } else {
    c01 = fma(splat<VF>(-5.242160335e-02f), z, -4.592239559e-01f);
    c23 = fma(splat<VF>(6.295608910e-05f), z, 6.897315383e-03f);
    c45 = fma(splat<VF>(9.481863526e-05f), z, -3.242566891e-04f);
    c67 = fma(splat<VF>(1.414892495e-06f), z, -1.533291106e-05f);
    c67 = fma(s, -5.823765648e-08f, c67);
  }
  return fma(s * s, fma(s, c67, c45), fma(s, c23, c01));
}

// 2^r / 2 on |r| <= 1/2. Fit errors 3e-9; brief, 9e-8.
template <class T>
VLLM_OPS_INLINE VF half_exp2(VF r) {
  VF p;
  if constexpr (kBrief<T>) {
    p = fma(splat<VF>(6.634956808e-04f), r, 4.835746717e-03f);
    p = fma(p, r, 2.775355428e-02f);
    p = fma(p, r, 1.201112196e-01f);
    p = fma(p, r, 3.465735018e-01f);
  } else {
    p = fma(splat<VF>(7.663598080e-05f), r, 6.695512566e-04f);
    p = fma(p, r, 4.809252452e-03f);
    p = fma(p, r, 2.775179781e-02f);
    p = fma(p, r, 1.201132387e-01f);
    p = fma(p, r, 3.465735912e-01f);
  }
  return fma(p, r, 0.5f);
}

// Phi(-z) = 2^(z (a + z c(z)) - 1), a = -sqrt(2 / pi) / ln 2, for 0 <= z < kFar: exact at 0, and
// one polynomial where Phi itself would need one for its middle and an exponential for its tail.
template <class T>
VLLM_OPS_INLINE VF normal_tail_near(VF z) {
  using E = ExpTraits<float>;
  const VF slope = fma(curve<T>(z), z, -1.151104093e+00f);
#if defined(VLLM_OPS_FMA)
  const VF shifted = fma(z, slope, E::kShift);
  const VF n = shifted - E::kShift;
  const VF r = fma(z, slope, -n);
#else
  // The exact product: its rounding would be an error of the exponent.
  const VF z_top = (VF)((VU)z & 0xfffff000u), slope_top = (VF)((VU)slope & 0xfffff000u);
  const VF product = z_top * slope_top;
  const VF shifted = product + E::kShift;
  const VF n = shifted - E::kShift;
  const VF r = (product - n) + ((z - z_top) * slope + z_top * (slope - slope_top));
#endif
  const VF half = half_exp2<T>(r);
#if defined(VLLM_OPS_AVX512)
  return _mm512_scalef_ps(half, n);
#else
  return (VF)((VI)half + ((VI)shifted << E::kMantissa));  // only the low bits of the sum are left
#endif
}

// e^(-z^2 / 2) without the error of rounding z^2, which e^ would multiply by z^2 / 2.
VLLM_OPS_INLINE VF exp_minus_half_square(VF z) {
  z = min_or_second(splat<VF>(14.5f), z);  // e^(-105): zero
#if defined(VLLM_OPS_FMA)
  const VF square = z * z;
  const VF rest = fma(z, z, -square);
#else
  const VF top = (VF)((VU)z & 0xfffff000u);
  const VF square = top * top;
  const VF rest = (z + top) * (z - top);
#endif
  Reduced<VF> k = reduce_ln2(max_or_second(splat<VF>(-104.0f), -0.5f * square));
  k.r = fma(rest, -0.5f, k.r);
  return scale_pow2(fma(k.r * k.r, expm1_tail(k.r), k.r) + 1.0f, k);
}

// Phi(-z) = e^(-z^2 / 2) N(z) / D(z) for z >= kFar (fit 7e-8, from 3.25 to 14.6).
VLLM_OPS_INLINE VF normal_tail_far(VF z) {
  const VF exponential = exp_minus_half_square(z);
  z = min_or_second(splat<VF>(14.5f), z);
  const VF n = fma(fma(splat<VF>(1.390584707e-01f), z, 3.530625105e-01f), z, 5.301805735e-01f);
  VF d = fma(splat<VF>(3.485546112e-01f), z, 8.856148124e-01f);
  d = fma(d, z, 1.665879488e+00f);
  return exponential * (n / fma(d, z, 1.0f));
}

VLLM_OPS_INLINE VF magnitude(VF x) { return (VF)((VU)x & 0x7fffffffu); }

template <class T>
VLLM_OPS_INLINE VF gelu_near(VF x) {
  const VF z = magnitude(x);
  return fma(-z, normal_tail_near<T>(z), max_or_second(VF{}, x));
}
template <class T>
VLLM_OPS_INLINE VF gelu_any(VF x) {
  const VF z = magnitude(x);
  const VF tail = select(z < kFar, normal_tail_near<T>(z), normal_tail_far(z));
  // Of the infinities, -inf gives NaN, as in the reference.
  return fma(-magnitude(min_or_second(splat<VF>(15.0f), x)), tail, max_or_second(VF{}, x));
}
template <class T>
VLLM_OPS_INLINE Block<float> gelu(const Block<float>& x) {
  if (__builtin_expect(all_below(magnitude(x.a), kFar) && all_below(magnitude(x.b), kFar), 1)) {
    return map<float>(x, gelu_near<T>);
  }
  return map<float>(x, gelu_any<T>);
}

// The fp64 path is for checking, not for speed: one call of the C library per lane.
template <class T>
VLLM_OPS_INLINE Block<double> gelu(const Block<double>& x) {
  const auto one = [](VD v) VLLM_OPS_INLINE_LAMBDA {
    VD phi{};
    for (int i = 0; i < kLanes<double>; ++i) phi[i] = 0.5 * ::erfc(-v[i] * 0.70710678118654752440);
    return v * phi;
  };
  return map<double>(x, one);
}

}  // namespace
}  // namespace vllm_ops
