// SPDX-License-Identifier: Apache-2.0
// The normal distribution function, for GELU. TPC-C has no erf.
#ifndef VLLM_OPS_GAUDI_TPC_NORMAL_CDF_H_
#define VLLM_OPS_GAUDI_TPC_NORMAL_CDF_H_

#include "special.h"

// Phi(x) = erfc(-x / sqrt(2)) / 2, by the fits of the CPU kernels: near zero 1/2 + x R(x^2)
// (2^-30 on |x| <= 1); beyond that e^(-z^2 / 2) G((z - 5) / (z + 5)), z = |x| (2^-27.5 on
// [0.97, 14.5]), so that the negative side keeps its relative precision.
static inline float64 normal_cdf(float64 x) {
  const float64 one = 1.0f;
  // e^(-14.5^2 / 2) is zero in fp32.
  const float64 z = v_f32_min_b(v_f32_abs_b(x), 14.5f);

  const float64 s = v_f32_mul_b(z, z);
  float64 r = -7.654208275e-06f;
  r = v_f32_mac_b(r, s, (float64)1.134863705e-04f);
  r = v_f32_mac_b(r, s, (float64)-1.186329988e-03f);
  r = v_f32_mac_b(r, s, (float64)9.973322973e-03f);
  r = v_f32_mac_b(r, s, (float64)-6.649035960e-02f);
  r = v_f32_mac_b(r, s, (float64)3.989422917e-01f);
  const float64 centre = v_f32_mac_b(x, r, (float64)0.5f);

  const float64 t = v_div_f32(v_f32_add_b(z, -5.0f), v_f32_add_b(z, 5.0f));
  float64 g = 1.664014271e-04f;
  g = v_f32_mac_b(g, t, (float64)1.805983047e-04f);
  g = v_f32_mac_b(g, t, (float64)-2.397366567e-03f);
  g = v_f32_mac_b(g, t, (float64)9.001206607e-03f);
  g = v_f32_mac_b(g, t, (float64)-2.341038175e-02f);
  g = v_f32_mac_b(g, t, (float64)4.785423353e-02f);
  g = v_f32_mac_b(g, t, (float64)-8.088411391e-02f);
  g = v_f32_mac_b(g, t, (float64)1.160688624e-01f);
  g = v_f32_mac_b(g, t, (float64)-1.434575468e-01f);
  g = v_f32_mac_b(g, t, (float64)7.691930234e-02f);

  // The rounding error of z^2 would be multiplied by up to 50 in the exponential: it is put back.
  const float64 rest = v_f32_mac_b(z, z, negated(s));
  float64 tail = v_exp_f32(v_f32_mul_b(s, -0.5f));
  tail = v_f32_mul_b(tail, v_f32_mac_b(rest, (float64)-0.5f, one));
  tail = v_f32_mul_b(tail, g);
  const float64 upper = v_f32_add_b(one, negated(tail));
  const float64 far = v_f32_sel_grt_f32_b(x, 0.0f, upper, tail);
  return v_f32_sel_less_f32_b(z, one, centre, far);
}

#endif  // VLLM_OPS_GAUDI_TPC_NORMAL_CDF_H_
