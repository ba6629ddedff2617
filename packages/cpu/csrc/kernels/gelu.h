// SPDX-License-Identifier: Apache-2.0
// The normal distribution function, for GELU.
#pragma once

#include "math.h"

extern "C" double erfc(double);

namespace vllm_ops {
namespace {

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

// x Phi(x), Phi(x) = erfc(-x / sqrt(2)) / 2. Near zero x/2 + x^2 R(x^2) (fit 2^-34 on |x| <= 1),
// whose constant term is in two parts: fp32 holds it to 3e-8 only, always to the same side, which
// 72 applications add up to a tenth of an ulp. Beyond that e^(-z^2 / 2) G(z) for the tail, z = |x|,
// with G a polynomial in (z - 5) / (z + 5) (fit 2^-27.5 on [0.97, 14.5]); so the negative side
// keeps its relative precision, which 1 + erf loses below -4.
VLLM_OPS_INLINE VF times_normal_cdf(VF x) {
  const VF z = (VF)((VU)x & 0x7fffffffu);
  const VF s = x * x;
  VF r = fma(splat<VF>(5.712524285e-07f), s, -9.386330021e-06f);
  r = fma(r, s, 1.154615820e-04f);
  r = fma(r, s, -1.187372371e-03f);
  r = fma(r, s, 9.973573498e-03f);
  r = fma(r, s, -6.649038196e-02f);
  r = fma(r, s, -1.133517008e-08f);
  const VF centre = fma(x, fma(x, splat<VF>(3.989422917e-01f), x * r), 0.5f * x);

  const VF z_far = min_or_second(splat<VF>(14.5f), z);
  const VF t = (z_far - 5.0f) / (z_far + 5.0f);
  VF g = fma(splat<VF>(1.664014271e-04f), t, 1.805983047e-04f);
  g = fma(g, t, -2.397366567e-03f);
  g = fma(g, t, 9.001206607e-03f);
  g = fma(g, t, -2.341038175e-02f);
  g = fma(g, t, 4.785423353e-02f);
  g = fma(g, t, -8.088411391e-02f);
  g = fma(g, t, 1.160688624e-01f);
  g = fma(g, t, -1.434575468e-01f);
  g = fma(g, t, 7.691930234e-02f);
  const VF tail = exp_minus_half_square(z) * g;
  const VF far = select(x > 0.0f, 1.0f - tail, tail);
  return select(z < 1.0f, centre, x * far);
}

// The fp64 path is for checking, not for speed: one call of the C library per lane.
VLLM_OPS_INLINE VD times_normal_cdf(VD x) {
  VD r{};
  for (int i = 0; i < kLanes<double>; ++i) r[i] = 0.5 * ::erfc(-x[i] * 0.70710678118654752440);
  return x * r;
}

}  // namespace
}  // namespace vllm_ops
