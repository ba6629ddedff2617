// SPDX-License-Identifier: Apache-2.0
// round(round(silu(x[:, :d])) * x[:, d:]). Index space: [d / 128, rows].
#include "special.h"
#include "vec.h"

static inline float64 silu(float64 x) { return times_sigmoid(x, negated(x)); }

void main(tensor x, tensor out) {
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
      gate.v1 = silu(gate.v1);
      gate.v2 = silu(gate.v2);
      store(gate_at, out, narrow(multiply(rounded(gate), widen(load(up_at, x)))));
    }
  }
}
