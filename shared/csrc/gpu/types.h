// SPDX-License-Identifier: Apache-2.0
// What the torch side and the kernels share: dtypes, strided rows, the arguments of each launch.
// Plain data: every pointer, stride and size has been checked before it gets here.
#pragma once

#include <stdint.h>

namespace vllm_ops::gpu {

enum class DType : int { kFloat32, kFloat16, kBFloat16, kFloat64 };

// Sixteen bits of storage; arithmetic is always fp32.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// Sixteen bytes: what one vector access moves.
struct alignas(16) Words {
  uint32_t w[4];
};

// Where row `i` of a tensor begins, in elements. The dimensions before the last are collapsed as
// far as the strides allow; what remains is walked, innermost last.
struct Rows {
  static constexpr int kMaxDims = 4;
  int dims;
  int64_t size[kMaxDims];  // size[0] is never needed
  int64_t stride[kMaxDims];
};

// A per-column parameter (weight, bias) in any dtype; data is null where there is none.
struct Param {
  const void* data;
  DType dtype;
};

enum class Gated : int {
  kSiluAndMul,
  kMulAndSilu,
  kGeluAndMul,
  kGeluTanhAndMul,
  kFatreluAndMul,    // a = threshold
  kSiluAndMulClamp,  // a = limit
  kSwigluOAIAndMul,  // a = alpha, b = limit; interleaved
};

enum class Unary : int {
  kGelu,
  kGeluTanh,
  kGeluFast,
  kQuickGelu,
  kRelu2,
  kXielu,  // a = beta, b = eps; alpha_p and alpha_n
};

// `vectors`: every pointer is 16-byte aligned and every pitch and length is a whole number of
// 16-byte vectors.
struct GatedArgs {
  Gated op;
  DType dtype;
  bool vectors;
  const void* x;
  Rows x_rows;
  void* out;
  int64_t rows;
  int64_t cols;  // of the output
  float a, b;
};

struct UnaryArgs {
  Unary op;
  DType dtype;
  bool vectors;
  const void* x;
  Rows x_rows;
  void* out;
  int64_t rows;
  int64_t cols;
  float a, b;
  Param alpha_p, alpha_n;
};

struct RmsNormArgs {
  DType dtype;
  bool vectors;
  const void* x;
  Rows x_rows;
  const void* residual;  // null without the fused addition
  Rows residual_rows;
  void* out;
  Rows out_rows;
  void* sum;  // x + residual, rounded
  Rows sum_rows;
  Param weight;
  int64_t rows;
  int cols;
  int variance_size;
  float eps;
  float weight_offset;
  bool round_before_weight;
};

struct LayerNormArgs {
  DType dtype;
  bool vectors;
  const void* x;
  Rows x_rows;
  void* out;
  Param weight, bias;
  int64_t rows;
  int cols;
  float eps;
};

struct GatedNormArgs {
  DType dtype;
  bool vectors;
  const void* x;
  Rows x_rows;
  const void* gate;  // may be null
  DType gate_dtype;
  Rows gate_rows;
  void* out;
  Param weight;
  int64_t rows;
  int groups;
  int cols;  // of one group
  float eps;
  bool norm_before_gate;
};

// One of query and key: a row per token, a pitch per head.
struct Heads {
  const void* x;
  Rows x_rows;
  int64_t x_pitch;
  void* out;
  Rows out_rows;
  int64_t out_pitch;
  int count;
};

enum class Angles : int { kTable, kMultimodal, kGiven };

// Where the cosines and sines of a token come from.
struct AngleArgs {
  // kTable and kMultimodal: fp32 [max_position, rotary_dim], cos then sin, and the positions;
  // kMultimodal has three of them per token, `tokens` apart.
  const float* table;
  const void* positions;
  bool wide_positions;  // int64, else int32
  int64_t max_position;
  int section[3];
  bool interleaved;
  // kGiven: [given_rows, rotary_dim / 2] each.
  Param cos, sin;
  int64_t cos_pitch, sin_pitch;
  int64_t given_rows;
};

struct RotaryArgs {
  DType dtype;
  bool vectors;
  bool neox;
  bool copy_rest;  // false in place
  Heads query, key;
  Angles source;
  AngleArgs angles;
  int64_t tokens;
  int head_size;
  int rotary_dim;
};

struct QkNormRopeArgs {
  RotaryArgs rotary;
  Param q_weight, k_weight;
  float eps;
  float weight_offset;
  bool round_before_weight;
};

}  // namespace vllm_ops::gpu
