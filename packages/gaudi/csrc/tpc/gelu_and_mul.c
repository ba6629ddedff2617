// SPDX-License-Identifier: Apache-2.0
// round(round(gelu(x[:, :d])) * x[:, d:]), with erf or with tanh. Index space: [d / 128, rows].
#include "normal_cdf.h"
#include "special.h"
#include "vec.h"

static inline float64 gelu(float64 x) { return v_f32_mul_b(x, normal_cdf(x)); }

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
static inline float64 gelu_tanh(float64 x) {
  const float64 cube = v_f32_mul_b(v_f32_mul_b(x, x), x);
  const float64 inner = v_f32_add_b(v_f32_mul_b(cube, 0.044715f), x);
  return times_sigmoid(x, v_f32_mul_b(inner, -1.5957691216057308f));
}

void main(tensor x, tensor out, int tanh_form) {
  const int5 begin = get_index_space_offset();
  const int5 end = get_index_space_size() + begin;
  const int d = get_dim_size(out, 0);
  int5 gate_at = {0, 0, 0, 0, 0};
  int5 up_at = {0, 0, 0, 0, 0};
  for (int row = begin[1]; row < end[1]; ++row) {
    gate_at[1] = row;
    up_at[1] = row;
    for (int block = begin[0]; block < end[0]; ++block) {
      gate_at[0] = block * STEP;
      up_at[0] = d + block * STEP;
      float128 gate = widen(load(gate_at, x));
      if (tanh_form) {
        gate.v1 = gelu_tanh(gate.v1);
        gate.v2 = gelu_tanh(gate.v2);
      } else {
        gate.v1 = gelu(gate.v1);
        gate.v2 = gelu(gate.v2);
      }
      store(gate_at, out, narrow(multiply(rounded(gate), widen(load(up_at, x)))));
    }
  }
}
