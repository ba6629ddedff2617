// SPDX-License-Identifier: Apache-2.0
// Where the cosine and sine of a pair come from: a table by position, the same with three positions
// per token, or tensors given by the caller. `begin` settles on a token, `load` reads N pairs.
#pragma once

#include "memory.h"

namespace vllm_ops::gpu {

VLLM_OPS_FN int64_t load_position(const AngleArgs& args, int64_t i) {
  return args.wide_positions ? load1(static_cast<const int64_t*>(args.positions) + i)
                             : int64_t(load1(static_cast<const int32_t*>(args.positions) + i));
}

// The row of the table for a position; null outside, where cos and sin are NaN. Never a wild read,
// and no synchronisation to raise an error.
VLLM_OPS_FN const float* table_row(const AngleArgs& args, int64_t position, int rotary_dim) {
  const bool inside = position >= 0 && position < args.max_position;
  return inside ? args.table + position * rotary_dim : nullptr;
}

template <Angles kSource>
struct AngleReader;

template <>
struct AngleReader<Angles::kTable> {
  const float* row;

  VLLM_OPS_FN void begin(const AngleArgs& args, int64_t token, int64_t, int rotary_dim) {
    row = table_row(args, load_position(args, token), rotary_dim);
  }
  template <int N>
  VLLM_OPS_FN void load(const AngleArgs&, int pair, int half, float (&cos)[N],
                        float (&sin)[N]) const {
    if (row == nullptr) {
#pragma unroll
      for (int i = 0; i < N; ++i) cos[i] = sin[i] = bits_to_float(0x7fc00000u);
    } else if constexpr (N % 4 == 0) {
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        float c[4], s[4];
        load_values(row + pair + i, c);
        load_values(row + half + pair + i, s);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          cos[i + j] = c[j];
          sin[i + j] = s[j];
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        cos[i] = load1(row + pair + i);
        sin[i] = load1(row + half + pair + i);
      }
    }
  }
};

template <>
struct AngleReader<Angles::kMultimodal> {
  const float *row0, *row1, *row2;

  VLLM_OPS_FN void begin(const AngleArgs& args, int64_t token, int64_t tokens, int rotary_dim) {
    row0 = table_row(args, load_position(args, token), rotary_dim);
    row1 = table_row(args, load_position(args, tokens + token), rotary_dim);
    row2 = table_row(args, load_position(args, 2 * tokens + token), rotary_dim);
  }
  VLLM_OPS_FN const float* row_of(const AngleArgs& args, int pair) const {
    // Two questions and no early return: with returns clang indexes the three pointers in memory.
    const int* section = args.section;
    const bool second = args.interleaved ? pair % 3 == 1 && pair < 3 * section[1]
                                         : pair >= section[0] && pair < section[0] + section[1];
    const bool third =
        args.interleaved ? pair % 3 == 2 && pair < 3 * section[2] : pair >= section[0] + section[1];
    const float* row = second ? row1 : row0;
    return third ? row2 : row;
  }
  template <int N>
  VLLM_OPS_FN void load(const AngleArgs& args, int pair, int half, float (&cos)[N],
                        float (&sin)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float* row = row_of(args, pair + i);
      cos[i] = sin[i] = bits_to_float(0x7fc00000u);
      if (row != nullptr) {
        cos[i] = load1(row + pair + i);
        sin[i] = load1(row + half + pair + i);
      }
    }
  }
};

template <>
struct AngleReader<Angles::kGiven> {
  int64_t cos_begin, sin_begin;

  VLLM_OPS_FN void begin(const AngleArgs& args, int64_t token, int64_t, int) {
    const int64_t row = uint32_t(token) % uint32_t(args.given_rows);
    cos_begin = row * args.cos_pitch;
    sin_begin = row * args.sin_pitch;
  }
  template <int N>
  VLLM_OPS_FN void load(const AngleArgs& args, int pair, int, float (&cos)[N],
                        float (&sin)[N]) const {
    load_any(args.cos.data, args.cos.dtype, cos_begin + pair, N, cos);
    load_any(args.sin.data, args.sin.dtype, sin_begin + pair, N, sin);
  }
};

}  // namespace vllm_ops::gpu
