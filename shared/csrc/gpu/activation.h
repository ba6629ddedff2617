// SPDX-License-Identifier: Apache-2.0
// Gated and pointwise activations; docs/ops.md gives the definitions and the rounding points.
#pragma once

#include "memory.h"
#include "softplus.h"

namespace vllm_ops::gpu {

constexpr int kElementwiseThreads = 256;

VLLM_OPS_FN float sigmoid(float x) { return 1.0f / (1.0f + expf_(-x)); }
VLLM_OPS_FN float silu(float x) { return x / (1.0f + expf_(-x)); }
// erfc keeps the relative precision that 1 + erf loses below -4.
VLLM_OPS_FN float gelu(float x) { return x * (0.5f * erfcf_(x * -0.70710678118654752440f)); }
VLLM_OPS_FN float gelu_tanh(float x) {
  const float inner = x * x * x * 0.044715f + x;
  return x * sigmoid(1.5957691216057307f * inner);  // 2 sqrt(2 / pi)
}
VLLM_OPS_FN float gelu_fast(float x) {
  const float inner = 0.7978845608f * x * (1.0f + 0.044715f * x * x);
  return x * sigmoid(2.0f * inner);
}
VLLM_OPS_FN float quick_gelu(float x) { return x * sigmoid(1.702f * x); }
// A NaN stays, as in torch's clamp.
VLLM_OPS_FN float clamp_max(float x, float limit) { return x > limit ? limit : x; }
VLLM_OPS_FN float clamp_both(float x, float limit) {
  return x < -limit ? -limit : clamp_max(x, limit);
}

// The value of one output before its last rounding, from the first and the second half of the row.
template <class T, Gated kOp>
VLLM_OPS_FN float gated(float first, float second, float a, float b) {
  switch (kOp) {
    case Gated::kSiluAndMul:
      return round_to<T>(silu(first)) * second;
    case Gated::kMulAndSilu:
      return first * round_to<T>(silu(second));
    case Gated::kGeluAndMul:
      return round_to<T>(gelu(first)) * second;
    case Gated::kGeluTanhAndMul:
      return round_to<T>(gelu_tanh(first)) * second;
    case Gated::kFatreluAndMul:
      return (first <= a ? 0.0f : first) * second;
    case Gated::kSiluAndMulClamp:
      return round_to<T>(silu(clamp_max(first, a))) * clamp_both(second, a);
    case Gated::kSwigluOAIAndMul: {
      const float gate = clamp_max(first, b);
      return (clamp_both(second, b) + 1.0f) * (gate * sigmoid(a * gate));
    }
  }
  return 0.0f;
}

template <Unary kOp>
VLLM_OPS_FN float unary(float x, float a, float b, const Pair& p, const Pair& n) {
  switch (kOp) {
    case Unary::kGelu:
      return gelu(x);
    case Unary::kGeluTanh:
      return gelu_tanh(x);
    case Unary::kGeluFast:
      return gelu_fast(x);
    case Unary::kQuickGelu:
      return quick_gelu(x);
    case Unary::kRelu2: {
      const float r = x < 0.0f ? 0.0f : x;
      return r * r;
    }
    case Unary::kXielu: {
      const float low = x > b ? b : x;
      if (x > 0.0f) {
        const float px = p.high * x;
        if (px - px != 0.0f) return px * x + a * x;  // infinity has no rest
        const float rest = fmaf_(p.low, x, fmaf_(p.high, x, -px));
        return fmaf_(px, x, fmaf_(rest, x, a * x));
      }
      const float curve = expm1f_(low) - x;
      return fmaf_(curve, n.high, fmaf_(curve, n.low, a * x));
    }
  }
  return 0.0f;
}

// A block covers block_dim_y rows and block_dim_x chunks of columns, so no index is divided.
template <class T, Gated kOp, bool kVectors>
VLLM_OPS_KERNEL(kElementwiseThreads)
gated_kernel(const GatedArgs args) {
  constexpr int kWidth = kVectors ? kChunk<T> : 1;
  const int64_t chunks = args.cols / kWidth;
  // torch compares with a limit of x's own dtype, but for swigluoai, which is fp32 throughout.
  constexpr bool kWide = kOp == Gated::kSwigluOAIAndMul;
  const float a = kWide ? args.a : round_to<T>(args.a), b = args.b;
  for (int64_t row = block_x() * block_dim_y() + thread_y(); row < args.rows;
       row += grid_x() * block_dim_y()) {
    const T* x = static_cast<const T*>(args.x) + row_offset(args.x_rows, row);
    T* out = static_cast<T*>(args.out) + row * args.cols;
    for (int64_t c = block_y() * block_dim_x() + thread_x(); c < chunks;
         c += grid_y() * block_dim_x()) {
      float v[kWidth];
      if constexpr (kOp == Gated::kSwigluOAIAndMul) {
        float left[kWidth], right[kWidth];  // each holds alternating firsts and seconds
        load_values(x + 2 * c * kWidth, left);
        load_values(x + (2 * c + 1) * kWidth, right);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const int j = 2 * i;
          const float first = j < kWidth ? left[j] : right[j - kWidth];
          const float second = j + 1 < kWidth ? left[j + 1] : right[j + 1 - kWidth];
          v[i] = gated<T, kOp>(first, second, a, b);
        }
      } else {
        float first[kWidth], second[kWidth];
        load_values(x + c * kWidth, first);
        load_values(x + args.cols + c * kWidth, second);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) v[i] = gated<T, kOp>(first[i], second[i], a, b);
      }
      store_values(out + c * kWidth, v);
    }
  }
}

template <class T, Unary kOp, bool kVectors>
VLLM_OPS_KERNEL(kElementwiseThreads)
unary_kernel(const UnaryArgs args) {
  constexpr int kWidth = kVectors ? kChunk<T> : 1;
  const int64_t chunks = args.cols / kWidth;
  Pair p{}, n{};
  if constexpr (kOp == Unary::kXielu) {
    p = softplus(load_one(args.alpha_p));
    n = softplus(load_one(args.alpha_n));
    const Pair sum = two_sum(args.a, n.high);
    n = {sum.high, sum.low + n.low};
  }
  for (int64_t row = block_x() * block_dim_y() + thread_y(); row < args.rows;
       row += grid_x() * block_dim_y()) {
    const T* x = static_cast<const T*>(args.x) + row_offset(args.x_rows, row);
    T* out = static_cast<T*>(args.out) + row * args.cols;
    for (int64_t c = block_y() * block_dim_x() + thread_x(); c < chunks;
         c += grid_y() * block_dim_x()) {
      float v[kWidth];
      load_values(x + c * kWidth, v);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) v[i] = unary<kOp>(v[i], args.a, args.b, p, n);
      store_values(out + c * kWidth, v);
    }
  }
}

}  // namespace vllm_ops::gpu
