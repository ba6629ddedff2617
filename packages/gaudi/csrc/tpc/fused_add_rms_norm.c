// SPDX-License-Identifier: Apache-2.0
// sum = round(x + residual), out = rms_norm(sum): one pass over global memory, the sum of a row
// waits in local memory until its mean square is known. Index space: [rows].
#include "norm.h"

__local__ packed saved[SAVED_STEPS];

void main(tensor x, tensor residual, tensor weight, tensor out, tensor sum, float inverse_size,
          float eps, float weight_offset, int round_before_weight) {
  const int5 begin = get_index_space_offset();
  const int5 end = get_index_space_size() + begin;
  const int columns = get_dim_size(out, 0);
  int5 at = {0, 0, 0, 0, 0};
  int5 weight_at = {0, 0, 0, 0, 0};
  for (int row = begin[0]; row < end[0]; ++row) {
    at[1] = row;
    float128 squares;
    squares.v1 = 0.0f;
    squares.v2 = 0.0f;
    for (int column = 0, step = 0; column < columns; column += STEP, ++step) {
      at[0] = column;
      const packed total = narrow(add(widen(load(at, x)), widen(load(at, residual))));
      saved[step] = total;
      store(at, sum, total);
      squares = add_squares(widen(total), squares);
    }
    const float64 root = inverse_root(squares, inverse_size, eps);
    for (int column = 0, step = 0; column < columns; column += STEP, ++step) {
      at[0] = column;
      weight_at[0] = column;
      store(at, out,
            scaled(widen(saved[step]), root, load(weight_at, weight), weight_offset,
                   round_before_weight));
    }
  }
}
