// SPDX-License-Identifier: Apache-2.0
// The RMS norm of every head of query and key, [tokens, heads, head_size] each, in one kernel.
// Index space: [tokens].
#include "norm.h"

static inline void norm_heads(int token, tensor x, tensor weight, tensor out, float inverse_size,
                              float eps, float weight_offset, int round_before_weight) {
  const int head_size = get_dim_size(x, 0);
  const int heads = get_dim_size(x, 1);
  int5 at = {0, 0, 0, 0, 0};
  int5 weight_at = {0, 0, 0, 0, 0};
  at[2] = token;
  for (int head = 0; head < heads; ++head) {
    at[1] = head;
    float128 squares;
    squares.v1 = 0.0f;
    squares.v2 = 0.0f;
    for (int column = 0; column < head_size; column += STEP) {
      at[0] = column;
      squares = add_squares(widen(load(at, x)), squares);
    }
    const float64 root = inverse_root(squares, inverse_size, eps);
    // A head is one or two loads, which the second time come from the cache.
    for (int column = 0; column < head_size; column += STEP) {
      at[0] = column;
      weight_at[0] = column;
      store(at, out,
            scaled(widen(load(at, x)), root, load(weight_at, weight), weight_offset,
                   round_before_weight));
    }
  }
}

void main(tensor query, tensor key, tensor q_weight, tensor k_weight, tensor q_out, tensor k_out,
          float inverse_size, float eps, float weight_offset, int round_before_weight) {
  const int5 begin = get_index_space_offset();
  const int5 end = get_index_space_size() + begin;
  for (int token = begin[0]; token < end[0]; ++token) {
    norm_heads(token, query, q_weight, q_out, inverse_size, eps, weight_offset,
               round_before_weight);
    norm_heads(token, key, k_weight, k_out, inverse_size, eps, weight_offset, round_before_weight);
  }
}
