// SPDX-License-Identifier: Apache-2.0
// Special functions with a step of correction: how accurate the device's own are is not documented,
// and in fp32 the contract counts single ulps. The corrections also take back what rounding
// 1 + e^-s costs.
#ifndef VLLM_OPS_GAUDI_TPC_SPECIAL_H_
#define VLLM_OPS_GAUDI_TPC_SPECIAL_H_

static inline float64 negated(float64 a) { return v_f32_mul_b(a, -1.0f); }

// value + correction where the correction is an ordinary number, which it is not beside infinities.
static inline float64 corrected(float64 value, float64 correction) {
  const float64 limit = 1e38f;
  return v_f32_sel_less_f32_b(v_f32_abs_b(correction), limit, v_f32_add_b(value, correction),
                              value);
}

// 1 / sqrt(a), with one Newton step r + r (1 - a r^2) / 2 on an exact a r.
static inline float64 rsqrt(float64 a) {
  const float64 one = 1.0f;
  const float64 r = v_rsqrt_f32(a);
  const float64 ar = v_f32_mul_b(a, r);
  const float64 ar_rest = v_f32_mac_b(a, r, negated(ar));
  float64 e = v_f32_mac_b(negated(ar), r, one);
  e = v_f32_mac_b(negated(ar_rest), r, e);
  return corrected(r, v_f32_mul_b(v_f32_mul_b(e, 0.5f), r));
}

// x / (1 + e^-s) = x sigmoid(s), for minus_s = -s.
static inline float64 times_sigmoid(float64 x, float64 minus_s) {
  const float64 one = 1.0f;
  const float64 e = v_exp_f32(minus_s);
  const float64 t = v_f32_add_b(one, e);
  const float64 q = v_div_f32(x, t);
#ifdef VLLM_OPS_BF16
  return q;
#else
  // t + t_rest = 1 + e exactly.
  const float64 larger = v_f32_max_b(one, e);
  const float64 smaller = v_f32_min_b(one, e);
  const float64 t_rest = v_f32_add_b(smaller, negated(v_f32_add_b(t, negated(larger))));
  float64 rest = v_f32_mac_b(negated(q), t, x);
  rest = v_f32_mac_b(negated(q), t_rest, rest);
  return corrected(q, v_div_f32(rest, t));
#endif
}

#endif  // VLLM_OPS_GAUDI_TPC_SPECIAL_H_
