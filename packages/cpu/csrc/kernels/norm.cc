// SPDX-License-Identifier: Apache-2.0
// layer_norm and rms_norm_gated of one ISA tier.
#include "reduce.h"
#include "sigmoid.h"
#include "table.h"

namespace vllm_ops {
namespace {

// The first n elements, zeros after them.
template <class S>
VLLM_OPS_INLINE Block<S> keep_n(const Block<S>& v, int64_t n) {
  S buf[kBlock<S>];
  store(buf, v);
  for (int64_t i = n; i < kBlock<S>; ++i) buf[i] = 0;
  return load(buf);
}

// ---- layer_norm ----

// x - mean, with the part of the mean that its rounding to the accumulation type would lose: where
// the mean is large next to the deviations, that part decides the last bits.
template <class V>
struct Centre {
  V hi, lo;
  explicit VLLM_OPS_INLINE Centre(double mean) {
    using S = Scalar<V>;
    hi = splat<V>(S(mean));
    lo = splat<V>(S(mean - double(S(mean))));
  }
  VLLM_OPS_INLINE V operator()(V x) const { return (x - hi) - lo; }
};

// Three passes over a row in the cache. E(x^2) - mean^2 would save one and lose the variance to
// cancellation.
template <class T>
void layer_norm(const LayerNormArgs& g) {
  using S = Acc<T>;
  using V = Vec<S>;
  const auto* weight = static_cast<const S*>(g.weight);
  const auto* bias = static_cast<const S*>(g.bias);
  const int64_t n = g.cols;
  for (int64_t r = 0; r < g.rows; ++r) {
    const T* x = static_cast<const T*>(g.x) + r * g.x_stride;
    T* out = static_cast<T*>(g.out) + r * g.out_stride;
    const auto block = [x](int64_t i) VLLM_OPS_INLINE_LAMBDA { return load(x + i); };
    const auto tail = [x](int64_t i, int64_t m) VLLM_OPS_INLINE_LAMBDA { return load_n(x + i, m); };
    const Centre<V> centre(sum_values(x, n) / double(n));
    const auto centred = [&](int64_t i) VLLM_OPS_INLINE_LAMBDA { return map<S>(block(i), centre); };
    const auto centred_tail = [&](int64_t i, int64_t m) VLLM_OPS_INLINE_LAMBDA {
      return keep_n<S>(map<S>(tail(i, m), centre), m);
    };
    const double variance = row_sum<S>(n, centred, centred_tail, AddSquare{}) / double(n);
    const V scale = splat<V>(inverse_root<S>(variance, g.eps));
    const auto scaled = [&](V v) VLLM_OPS_INLINE_LAMBDA { return centre(v) * scale; };
    const auto times = [](V a, V b) VLLM_OPS_INLINE_LAMBDA { return a * b; };
    const auto plus = [](V a, V b) VLLM_OPS_INLINE_LAMBDA { return a + b; };
    int64_t i = 0;
    for (; i + kBlock<S> <= n; i += kBlock<S>) {
      Block<S> y = map<S>(load(x + i), scaled);
      if (weight != nullptr) y = map<S>(y, load(weight + i), times);
      if (bias != nullptr) y = map<S>(y, load(bias + i), plus);
      store(out + i, y);
    }
    if (const int64_t m = n - i; m > 0) {
      Block<S> y = map<S>(load_n(x + i, m), scaled);
      if (weight != nullptr) y = map<S>(y, load_n(weight + i, m), times);
      if (bias != nullptr) y = map<S>(y, load_n(bias + i, m), plus);
      store_n(out + i, y, m);
    }
  }
}

// ---- rms_norm_gated ----

// One group: out = x * scale [* weight] [* silu(gate)]. X is T, or the accumulation type where x
// has been gated already.
template <class T, class X, class Gate>
VLLM_OPS_INLINE void scale_group(const X* x, T* out, const Acc<T>* weight, const Gate* gate,
                                 Vec<Acc<T>> scale, int64_t n) {
  using S = Acc<T>;
  using V = Vec<S>;
  const auto scaled = [=](V v) VLLM_OPS_INLINE_LAMBDA { return v * scale; };
  const auto times = [](V a, V b) VLLM_OPS_INLINE_LAMBDA { return a * b; };
  const auto times_silu = [](V a, V b) VLLM_OPS_INLINE_LAMBDA { return a * silu<T>(b); };
  int64_t i = 0;
  for (; i + kBlock<S> <= n; i += kBlock<S>) {
    Block<S> y = map<S>(load(x + i), scaled);
    if (weight != nullptr) y = map<S>(y, load(weight + i), times);
    if (gate != nullptr) y = map<S>(y, load(gate + i), times_silu);
    store(out + i, y);
  }
  if (const int64_t m = n - i; m > 0) {
    Block<S> y = map<S>(load_n(x + i, m), scaled);
    if (weight != nullptr) y = map<S>(y, load_n(weight + i, m), times);
    if (gate != nullptr) y = map<S>(y, load_n(gate + i, m), times_silu);
    store_n(out + i, y, m);
  }
}

template <class T, class Gate>
void rms_norm_gated(const GatedNormArgs& g) {
  using S = Acc<T>;
  using V = Vec<S>;
  const int64_t n = g.group_size;
  S* gated = static_cast<S*>(g.scratch);
  const auto times_silu = [](V a, V b) VLLM_OPS_INLINE_LAMBDA { return a * silu<T>(b); };
  for (int64_t r = 0; r < g.rows; ++r) {
    for (int64_t begin = 0; begin < g.cols; begin += n) {
      const T* x = static_cast<const T*>(g.x) + r * g.x_stride + begin;
      T* out = static_cast<T*>(g.out) + r * g.out_stride + begin;
      const S* weight = g.weight == nullptr ? nullptr : static_cast<const S*>(g.weight) + begin;
      const Gate* gate = g.gate == nullptr
                             ? nullptr
                             : static_cast<const Gate*>(g.gate) + r * g.gate_stride + begin;
      if (gate == nullptr || g.norm_before_gate) {
        const V scale = splat<V>(inverse_root<S>(sum_squares(x, n) / double(n), g.eps));
        scale_group<T>(x, out, weight, gate, scale, n);
        continue;
      }
      const auto block = [=](int64_t i) VLLM_OPS_INLINE_LAMBDA {
        const Block<S> v = map<S>(load(x + i), load(gate + i), times_silu);
        store(gated + i, v);
        return v;
      };
      const auto tail = [=](int64_t i, int64_t m) VLLM_OPS_INLINE_LAMBDA {
        const Block<S> v = map<S>(load_n(x + i, m), load_n(gate + i, m), times_silu);
        store_n(gated + i, v, m);
        return v;
      };
      const double mean_square = row_sum<S>(n, block, tail, AddSquare{}) / double(n);
      const V scale = splat<V>(inverse_root<S>(mean_square, g.eps));
      scale_group<T>(gated, out, weight, static_cast<const Gate*>(nullptr), scale, n);
    }
  }
}

}  // namespace

extern const NormTable VLLM_OPS_TABLE(norm);
const NormTable VLLM_OPS_TABLE(norm) = {
    {layer_norm<float>, layer_norm<BF16Checked>, layer_norm<F16>, layer_norm<double>},
    {
        {rms_norm_gated<float, float>, rms_norm_gated<BF16Checked, BF16>, rms_norm_gated<F16, F16>,
         rms_norm_gated<double, double>},
        {rms_norm_gated<float, float>, rms_norm_gated<BF16Checked, float>,
         rms_norm_gated<F16, float>, rms_norm_gated<double, double>},
    },
};

}  // namespace vllm_ops
