// SPDX-License-Identifier: Apache-2.0
// log(1 + e^x) as the sum of two floats, for the two parameters of xielu. Each multiplies a whole
// tensor, so its rounding would move every result the same way; and not every GPU has doubles.
#pragma once

#include "memory.h"

namespace vllm_ops::gpu {

struct Pair {
  float high, low;
};

// Exact: a + b.
VLLM_OPS_FN Pair two_sum(float a, float b) {
  const float sum = a + b, part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

// e^(x.high + x.low) = scale * (1 + high + low), for x in [-125 ln(2), 0].
struct PairExp {
  float scale, high, low;
};
VLLM_OPS_FN PairExp exp_of(const Pair& x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = fmaf_(x.high, 1.44269502f, kShift) - kShift;
  // ln(2) in two parts, of which the first has 9 bits: n times it is exact.
  const float left = fmaf_(n, -0.693359375f, x.high);
  const Pair r = two_sum(left, fmaf_(n, 2.12194442e-4f, x.low));
  // (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, a minimax fit, 2^-28 of e^r.
  float tail = fmaf_(1.381490962e-03f, r.high, 8.368674666e-03f);
  tail = fmaf_(tail, r.high, 4.166837782e-02f);
  tail = fmaf_(tail, r.high, 1.666652113e-01f);
  tail = fmaf_(tail, r.high, 4.999999404e-01f);
  const float low = fmaf_(r.high * r.high, tail, fmaf_(r.high, r.low, r.low));
  return {bits_to_float(uint32_t(int(n) + 127) << 23), r.high, low};
}

// Newton's step from s, the float nearby: s + e^-s + e^(x - s) - 1, where the four cancel.
VLLM_OPS_FN Pair softplus(float x) {
  const float s = x > 20.0f ? x : log1pf_(expf_(x));
  if (!(x > -80.0f && x < 20.0f)) return {s, 0.0f};
  const PairExp a = exp_of({-s, 0.0f}), b = exp_of(two_sum(x, -s));
  const Pair middle = two_sum(a.scale * a.high, b.scale * b.high);
  const Pair sum = two_sum(a.scale + (b.scale - 1.0f), middle.high);
  return {s, sum.high + (sum.low + middle.low + (a.scale * a.low + b.scale * b.low))};
}

}  // namespace vllm_ops::gpu
