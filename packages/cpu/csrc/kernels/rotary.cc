// SPDX-License-Identifier: Apache-2.0
// Rotation of the heads of one token, and the widening of tables in other dtypes, of one ISA tier.
#include "convert.h"
#include "table.h"

namespace vllm_ops {
namespace {

// x1 * cos - x2 * sin and x2 * cos + x1 * sin, each product rounded as in eager torch.
template <class V>
VLLM_OPS_INLINE void turn(V& x1, V& x2, V cos, V sin) {
  const V o1 = x1 * cos - x2 * sin;
  const V o2 = x2 * cos + x1 * sin;
  x1 = o1;
  x2 = o2;
}

template <class S>
VLLM_OPS_INLINE void turn(Block<S>& x1, Block<S>& x2, const Block<S>& cos, const Block<S>& sin) {
  turn(x1.a, x2.a, cos.a, sin.a);
  turn(x1.b, x2.b, cos.b, sin.b);
}

// Element i with element i + half.
template <class T>
VLLM_OPS_INLINE void neox_head(const T* x, T* out, const Acc<T>* cos, const Acc<T>* sin,
                               int64_t half) {
  using S = Acc<T>;
  int64_t i = 0;
  for (; i + kBlock<S> <= half; i += kBlock<S>) {
    Block<S> x1 = load(x + i), x2 = load(x + half + i);
    turn<S>(x1, x2, load(cos + i), load(sin + i));
    store(out + i, x1);
    store(out + half + i, x2);
  }
  if (const int64_t n = half - i; n > 0) {
    Block<S> x1 = load_n(x + i, n), x2 = load_n(x + half + i, n);
    turn<S>(x1, x2, load_n(cos + i, n), load_n(sin + i, n));
    store_n(out + i, x1, n);
    store_n(out + half + i, x2, n);
  }
}

// Element 2i with element 2i + 1.
template <class T>
VLLM_OPS_INLINE void gptj_head(const T* x, T* out, const Acc<T>* cos, const Acc<T>* sin,
                               int64_t half) {
  using S = Acc<T>;
  int64_t i = 0;
  for (; i + kLanes<S> <= half; i += kLanes<S>) {
    Block<S> pair = deinterleave(load(x + 2 * i));
    turn(pair.a, pair.b, load_vec<S>(cos + i), load_vec<S>(sin + i));
    store(out + 2 * i, interleave(pair));
  }
  if (const int64_t n = half - i; n > 0) {
    Block<S> pair = deinterleave(load_n(x + 2 * i, 2 * n));
    turn(pair.a, pair.b, load_n(cos + i, n).a, load_n(sin + i, n).a);
    store_n(out + 2 * i, interleave(pair), 2 * n);
  }
}

// Asks for what comes two pages later: hardware does not make out in time the two streams that are
// half a head apart (32 + 8 heads of 128 in fp32, 1024 tokens in place, from memory: 450 us, with
// this 290). Not for more than this thread will read: what lies behind belongs to another thread,
// which is writing there.
constexpr int64_t kPrefetch = 8192, kLine = 64;

template <class T>
VLLM_OPS_INLINE void prefetch_head(const T* x, int64_t rotary_dim) {
  const char* line = reinterpret_cast<const char*>(x) + kPrefetch;
  const char* end = line + rotary_dim * int64_t(sizeof(T));
  for (; line < end; line += kLine) __builtin_prefetch(line);
}

template <class T, bool kNeox>
void rotary(const RotaryArgs& g) {
  const auto* cos = static_cast<const Acc<T>*>(g.cos);
  const auto* sin = static_cast<const Acc<T>*>(g.sin);
  for (int64_t h = 0; h < g.heads; ++h) {
    const T* x = static_cast<const T*>(g.x) + h * g.x_stride;
    T* out = static_cast<T*>(g.out) + h * g.out_stride;
    if (h * g.x_stride + kPrefetch / int64_t(sizeof(T)) < g.x_ahead) prefetch_head(x, g.rotary_dim);
    if constexpr (kNeox) {
      neox_head(x, out, cos, sin, g.rotary_dim / 2);
    } else {
      gptj_head(x, out, cos, sin, g.rotary_dim / 2);
    }
    if (x != out) {
      for (int64_t i = g.rotary_dim; i < g.head_size; ++i) out[i] = x[i];
    }
  }
}

template <class T, class To>
void widen(const void* src, void* dst, int64_t n) {
  const T* s = static_cast<const T*>(src);
  To* d = static_cast<To*>(dst);
  if constexpr (sizeof(T) == 8 || sizeof(To) == 8) {
    // One element at a time: fp64 tables are rare.
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (sizeof(T) == 2) {
        d[i] = To(load_n(s + i, 1).a[0]);
      } else {
        d[i] = To(s[i]);
      }
    }
  } else {
    int64_t i = 0;
    for (; i + kBlock<To> <= n; i += kBlock<To>) store(d + i, load(s + i));
    if (i < n) store_n(d + i, load_n(s + i, n - i), n - i);
  }
}

}  // namespace

extern const RotaryTable VLLM_OPS_TABLE(rotary);
const RotaryTable VLLM_OPS_TABLE(rotary) = {
    {
        {rotary<float, false>, rotary<BF16Checked, false>, rotary<F16, false>,
         rotary<double, false>},
        {rotary<float, true>, rotary<BF16Checked, true>, rotary<F16, true>, rotary<double, true>},
    },
    {widen<float, float>, widen<BF16, float>, widen<F16, float>, widen<double, float>},
    {widen<float, double>, widen<BF16, double>, widen<F16, double>, widen<double, double>},
};

}  // namespace vllm_ops
