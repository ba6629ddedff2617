// SPDX-License-Identifier: Apache-2.0
// rms_norm and fused_add_rms_norm of one ISA tier.
//
// Two passes over a row that the first one leaves in the cache. The fused form stores x + residual
// once, in the first pass, and is then the unfused one: the same sum in the same order.
#include "reduce.h"
#include "table.h"

namespace vllm_ops {
namespace {

template <class T>
struct NoWeight {
  static constexpr bool kPresent = false;
  using W = T;
};
template <class T, class Stored>
struct WithWeight {
  static constexpr bool kPresent = true;
  using W = Stored;
};

// out = x * scale, weighted. x may be out.
template <class T, class Weight, bool kRound, bool kOffset>
VLLM_OPS_INLINE void scale_row(const T* x, T* out, const void* weight, Acc<T> scale,
                               const RmsNormArgs& g) {
  using S = Acc<T>;
  using V = Vec<S>;
  using W = typename Weight::W;
  const W* w = static_cast<const W*>(weight);
  const V s = splat<V>(scale), offset = splat<V>(S(g.weight_offset));
  const auto plain = [&](V v) VLLM_OPS_INLINE_LAMBDA { return v * s; };
  const auto weighted = [&](V v, V u) VLLM_OPS_INLINE_LAMBDA {
    V y = v * s;
    if constexpr (kRound) y = round_to<T>(y);
    if constexpr (kOffset) u = u + offset;
    return y * u;
  };
  int64_t i = 0;
  for (; i + kBlock<S> <= g.cols; i += kBlock<S>) {
    if constexpr (Weight::kPresent) {
      store(out + i, map<S>(load(x + i), load(w + i), weighted));
    } else {
      store(out + i, map<S>(load(x + i), plain));
    }
  }
  if (const int64_t n = g.cols - i; n > 0) {
    if constexpr (Weight::kPresent) {
      store_n(out + i, map<S>(load_n(x + i, n), load_n(w + i, n), weighted), n);
    } else {
      store_n(out + i, map<S>(load_n(x + i, n), plain), n);
    }
  }
}

template <class T>
VLLM_OPS_INLINE Acc<T> row_scale(double sum, const RmsNormArgs& g) {
  return inverse_root<Acc<T>>(sum / double(g.variance_size), g.eps);
}

template <class T, class Weight>
VLLM_OPS_INLINE void normalize_row(const T* x, T* out, Acc<T> scale, const RmsNormArgs& g) {
  if (!g.round_before_weight) {
    scale_row<T, Weight, false, true>(x, out, g.weight, scale, g);
  } else if (g.weight_offset == 0.0) {
    scale_row<T, Weight, true, false>(x, out, g.weight, scale, g);
  } else {
    scale_row<T, Weight, true, true>(x, out, g.weight, scale, g);
  }
}

// Rows with gaps between the runs, as heads in a fused projection, are not what hardware foresees
// (32 heads of 128 in fp16, 1024 tokens from memory: 600 us, with this 290).
template <class T>
VLLM_OPS_INLINE void prefetch_row(const T* row, int64_t cols) {
  const char* line = reinterpret_cast<const char*>(row);
  const char* end = line + cols * int64_t(sizeof(T));
  for (; line < end; line += 64) __builtin_prefetch(line);
}

// Whether the rows are too many to lie in a second-level cache. Then the next row is asked for
// before the second pass over this one, in which memory would have nothing to do (1024 rows of
// 4096: fp32 560 us, with this 470; bf16 340 and 215). For rows that are there it costs a tenth.
template <class T>
VLLM_OPS_INLINE bool from_memory(const RmsNormArgs& g) {
  return g.rows * g.cols * int64_t(sizeof(T)) > int64_t{1} << 19;
}

// Short rows go in batches, all their scales first: at the end of a sum stand a root and two
// divisions, and while a row's second pass waits for them the processor has no room left for the
// next row. Rows of 128 in fp16: 31 ns each, in batches 14.
constexpr int64_t kBatchRows = 16, kBatchElements = 2048;

template <class T, class Weight>
void rms_norm(const RmsNormArgs& g) {
  const int64_t fit = kBatchElements / g.cols;
  const int64_t batch = fit < 1 ? 1 : fit < kBatchRows ? fit : kBatchRows;
  const bool far = batch == 1 && from_memory<T>(g);
  for (int64_t begin = 0; begin < g.rows; begin += batch) {
    const int64_t count = g.rows - begin < batch ? g.rows - begin : batch;
    const T* x = static_cast<const T*>(g.x) + begin * g.x_stride;
    T* out = static_cast<T*>(g.out) + begin * g.out_stride;
    Acc<T> scale[kBatchRows];
    for (int64_t r = 0; r < count; ++r) {
      if (g.x_next != 0) prefetch_row(x + r * g.x_stride + g.x_next, g.cols);
      scale[r] = row_scale<T>(sum_squares(x + r * g.x_stride, g.variance_size), g);
    }
    if (far && begin + 1 < g.rows) prefetch_row(x + g.x_stride, g.cols);
    for (int64_t r = 0; r < count; ++r) {
      normalize_row<T, Weight>(x + r * g.x_stride, out + r * g.out_stride, scale[r], g);
    }
  }
}

template <class T, class Weight>
void fused_add_rms_norm(const RmsNormArgs& g) {
  using S = Acc<T>;
  const auto add = [](auto a, auto b) VLLM_OPS_INLINE_LAMBDA { return round_to<T>(a + b); };
  const bool far = from_memory<T>(g);
  for (int64_t r = 0; r < g.rows; ++r) {
    const T* x = static_cast<const T*>(g.x) + r * g.x_stride;
    const T* res = static_cast<const T*>(g.residual) + r * g.residual_stride;
    T* out = static_cast<T*>(g.out) + r * g.out_stride;
    T* total = static_cast<T*>(g.sum) + r * g.sum_stride;
    const auto block = [=](int64_t i) VLLM_OPS_INLINE_LAMBDA {
      const Block<S> s = map<S>(load(x + i), load(res + i), add);
      store_rounded(total + i, s);
      return s;
    };
    const auto tail = [=](int64_t i, int64_t n) VLLM_OPS_INLINE_LAMBDA {
      const Block<S> s = map<S>(load_n(x + i, n), load_n(res + i, n), add);
      store_n(total + i, s, n);
      return s;
    };
    const double sum = row_sum<S>(g.variance_size, block, tail, AddSquare{});
    int64_t i = g.variance_size;
    for (; i + kBlock<S> <= g.cols; i += kBlock<S>) block(i);
    if (i < g.cols) tail(i, g.cols - i);
    if (far && r + 1 < g.rows) {
      prefetch_row(x + g.x_stride, g.cols);
      prefetch_row(res + g.residual_stride, g.cols);
    }
    normalize_row<T, Weight>(total, out, row_scale<T>(sum, g), g);
  }
}

#define VLLM_OPS_PER_WEIGHT(kernel)                                                       \
  {                                                                                       \
    {kernel<float, NoWeight<float>>, kernel<BF16EvenOdd, NoWeight<BF16EvenOdd>>,          \
     kernel<F16, NoWeight<F16>>, kernel<double, NoWeight<double>>},                       \
        {kernel<float, WithWeight<float, float>>,                                         \
         kernel<BF16EvenOdd, WithWeight<BF16EvenOdd, BF16EvenOdd>>,                       \
         kernel<F16, WithWeight<F16, F16>>, kernel<double, WithWeight<double, double>>},  \
    {                                                                                     \
      kernel<float, WithWeight<float, float>>,                                            \
          kernel<BF16Checked, WithWeight<BF16Checked, float>>,                            \
          kernel<F16, WithWeight<F16, float>>, kernel<double, WithWeight<double, double>> \
    }                                                                                     \
  }

}  // namespace

extern const RmsNormTable VLLM_OPS_TABLE(rms_norm);
const RmsNormTable VLLM_OPS_TABLE(rms_norm) = {
    VLLM_OPS_PER_WEIGHT(rms_norm),
    VLLM_OPS_PER_WEIGHT(fused_add_rms_norm),
};

}  // namespace vllm_ops
