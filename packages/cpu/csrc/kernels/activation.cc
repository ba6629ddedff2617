// SPDX-License-Identifier: Apache-2.0
// Gated and pointwise activations of one ISA tier. docs/ops.md gives the definitions.
//
#include "convert.h"
#include "gelu.h"
#include "sigmoid.h"
#include "table.h"

namespace vllm_ops {
namespace {

// x * sigmoid(c * x)
template <class T, class V>
VLLM_OPS_INLINE V sigmoid_linear(V x, double c) {
  if constexpr (kFloat<T>) {
    return divide(x, one_plus_exp(product(x, -c)));
  } else {
    return times_sigmoid_neg<T>(x, x * Scalar<V>(-c));
  }
}

template <class T, class V>
VLLM_OPS_INLINE V gelu_tanh(V x) {
  using S = Scalar<V>;
  constexpr double kC = 1.5957691216057307117597842397375, kK = 0.044715;  // kC = 2 sqrt(2 / pi)
  if constexpr (kFloat<T>) {
    return divide(x, one_plus_exp(cubic(x, -kC, kK)));
  } else {
    return times_sigmoid_neg<T>(x, (x * x * x * S(kK) + x) * S(-kC));
  }
}

template <class T, class V>
VLLM_OPS_INLINE V gelu_fast(V x) {
  using S = Scalar<V>;
  constexpr double kC = 0.7978845608, kK = 0.044715;
  if constexpr (kFloat<T>) {
    return divide(x, one_plus_exp(cubic(x, -2 * kC, kK)));
  } else {
    const V u = x * S(-kC) * (x * S(kK) * x + S(1));
    return times_sigmoid_neg<T>(x, u + u);
  }
}

// A NaN stays, as in clamp.
template <class V>
VLLM_OPS_INLINE V clamp_max(V x, V limit) {
  return min_or_second(limit, x);
}
template <class V>
VLLM_OPS_INLINE V clamp_both(V x, V limit) {
  return max_or_second(-limit, min_or_second(limit, x));
}

// An operator takes vectors, or whole blocks if it decides something by block.
template <class Op, class S, class... Blocks>
VLLM_OPS_INLINE Block<S> apply(const Op& op, const Block<S>& x, const Blocks&... more) {
  if constexpr (Op::kByBlock) {
    return op(x, more...);
  } else {
    return map<S>(x, more..., [&op](auto... v) VLLM_OPS_INLINE_LAMBDA { return op(v...); });
  }
}

// ---- gated: f(a, b) on the two halves of a row ----

// How many blocks the loop of an operator interleaves. One block is two chains, too few to hide the
// latency of an exponential and a division; but two blocks of the longest formulas spill.
constexpr int kShort = 2, kLong = 1;

template <class T>
struct GatedBase {
  static constexpr int kBlocks = kShort;
  static constexpr bool kByBlock = false;
  using S = Acc<T>;
  using V = Vec<S>;
  V p0;
  explicit VLLM_OPS_INLINE GatedBase(const ElementwiseArgs& g) : p0(splat<V>(S(g.p0))) {}
};

template <class T>
struct SiluAndMul : GatedBase<T> {
  using typename GatedBase<T>::V;
  using GatedBase<T>::GatedBase;
  VLLM_OPS_INLINE V operator()(V a, V b) const { return round_to<T>(silu<T>(a)) * b; }
};
template <class T>
struct MulAndSilu : GatedBase<T> {
  using typename GatedBase<T>::V;
  using GatedBase<T>::GatedBase;
  VLLM_OPS_INLINE V operator()(V a, V b) const { return a * round_to<T>(silu<T>(b)); }
};
template <class T>
struct GeluAndMul : GatedBase<T> {
  static constexpr int kBlocks = kLong;
  static constexpr bool kByBlock = true;
  using typename GatedBase<T>::S;
  using GatedBase<T>::GatedBase;
  VLLM_OPS_INLINE Block<S> operator()(const Block<S>& a, const Block<S>& b) const {
    const Block<S> g = gelu<T>(a);
    return {round_to<T>(g.a) * b.a, round_to<T>(g.b) * b.b};
  }
};
template <class T>
struct GeluTanhAndMul : GatedBase<T> {
  static constexpr int kBlocks = kHalf<T> ? kShort : kLong;
  using typename GatedBase<T>::V;
  using GatedBase<T>::GatedBase;
  VLLM_OPS_INLINE V operator()(V a, V b) const { return round_to<T>(gelu_tanh<T>(a)) * b; }
};
template <class T>
struct FatreluAndMul : GatedBase<T> {
  using typename GatedBase<T>::V;
  using GatedBase<T>::GatedBase;
  VLLM_OPS_INLINE V operator()(V a, V b) const { return select(a <= this->p0, V{}, a) * b; }
};
template <class T>
struct SiluAndMulClamp : GatedBase<T> {
  static constexpr int kBlocks = kLong;
  using typename GatedBase<T>::V;
  using GatedBase<T>::GatedBase;
  VLLM_OPS_INLINE V operator()(V a, V b) const {
    const V limit = round_to<T>(this->p0);  // clamp gives a limit in the tensor's dtype
    return round_to<T>(silu<T>(clamp_max(a, limit))) * clamp_both(b, limit);
  }
};

template <class T, class Op>
void gated(const ElementwiseArgs& g) {
  using S = Acc<T>;
  const Op op(g);
  for (int64_t r = 0; r < g.rows; ++r) {
    const T* a = static_cast<const T*>(g.x) + r * g.x_stride;
    const T* b = a + g.d;
    T* out = static_cast<T*>(g.out) + r * g.out_stride;
    int64_t i = g.begin;
    for (; Op::kBlocks == 2 && i + 2 * kBlock<S> <= g.end; i += 2 * kBlock<S>) {
      const Block<S> a0 = load(a + i), a1 = load(a + i + kBlock<S>);
      const Block<S> b0 = load(b + i), b1 = load(b + i + kBlock<S>);
      const Block<S> o0 = apply(op, a0, b0), o1 = apply(op, a1, b1);
      store(out + i, o0);
      store(out + i + kBlock<S>, o1);
    }
    for (; i + kBlock<S> <= g.end; i += kBlock<S>) {
      store(out + i, apply(op, load(a + i), load(b + i)));
    }
    if (const int64_t n = g.end - i; n > 0) {
      store_n(out + i, apply(op, load_n(a + i, n), load_n(b + i, n)), n);
    }
  }
}

// ---- pointwise ----

template <class T>
struct UnaryBase {
  static constexpr int kBlocks = kShort;
  static constexpr bool kByBlock = false;
  using S = Acc<T>;
  using V = Vec<S>;
  explicit VLLM_OPS_INLINE UnaryBase(const ElementwiseArgs&) {}
};
template <class T>
struct Gelu : UnaryBase<T> {
  static constexpr int kBlocks = kLong;
  static constexpr bool kByBlock = true;
  using typename UnaryBase<T>::S;
  using UnaryBase<T>::UnaryBase;
  VLLM_OPS_INLINE Block<S> operator()(const Block<S>& x) const { return gelu<T>(x); }
};
template <class T>
struct GeluTanh : UnaryBase<T> {
  static constexpr int kBlocks = kHalf<T> ? kShort : kLong;
  using typename UnaryBase<T>::V;
  using UnaryBase<T>::UnaryBase;
  VLLM_OPS_INLINE V operator()(V x) const { return gelu_tanh<T>(x); }
};
template <class T>
struct GeluFast : UnaryBase<T> {
  static constexpr int kBlocks = kHalf<T> ? kShort : kLong;
  using typename UnaryBase<T>::V;
  using UnaryBase<T>::UnaryBase;
  VLLM_OPS_INLINE V operator()(V x) const { return gelu_fast<T>(x); }
};
template <class T>
struct QuickGelu : UnaryBase<T> {
  static constexpr int kBlocks = kHalf<T> ? kShort : kLong;
  using typename UnaryBase<T>::V;
  using UnaryBase<T>::UnaryBase;
  VLLM_OPS_INLINE V operator()(V x) const { return sigmoid_linear<T>(x, 1.702); }
};
template <class T>
struct Relu2 : UnaryBase<T> {
  using typename UnaryBase<T>::V;
  using UnaryBase<T>::UnaryBase;
  VLLM_OPS_INLINE V operator()(V x) const {
    x = max_or_second(V{}, x);
    return x * x;
  }
};
template <class T>
struct Xielu {
  static constexpr int kBlocks = kLong;
  static constexpr bool kByBlock = false;
  using S = Acc<T>;
  using V = Vec<S>;
  V p, n, n_lo, beta, eps;
  explicit VLLM_OPS_INLINE Xielu(const ElementwiseArgs& g)
      : p(splat<V>(S(g.p0))),
        n(splat<V>(S(g.p1))),
        n_lo(splat<V>(S(g.p1 - double(S(g.p1))))),
        beta(splat<V>(S(g.p2))),
        eps(splat<V>(S(g.p3))) {}
  VLLM_OPS_INLINE V operator()(V x) const {
    const V linear = beta * x, low = min_or_second(eps, x);
    if constexpr (kHalf<T>) {  // the roundings of the definition
      const V negative = (expm1(low) - x) * n + linear;
      return select(x > S(0), p * x * x + linear, negative);
    } else {
      // The two terms cancel near x = -1, so their own roundings count.
      const V m = expm1_minus(low) + (low - x);
      const V negative = fma(m, n_lo, fma(m, n, linear));
      return select(x > S(0), fma(p * x, x, linear), negative);
    }
  }
};

template <class T, class Op>
void unary(const ElementwiseArgs& g) {
  using S = Acc<T>;
  const Op op(g);
  for (int64_t r = 0; r < g.rows; ++r) {
    const T* x = static_cast<const T*>(g.x) + r * g.x_stride;
    T* out = static_cast<T*>(g.out) + r * g.out_stride;
    int64_t i = g.begin;
    for (; Op::kBlocks == 2 && i + 2 * kBlock<S> <= g.end; i += 2 * kBlock<S>) {
      const Block<S> x0 = load(x + i), x1 = load(x + i + kBlock<S>);
      const Block<S> o0 = apply(op, x0), o1 = apply(op, x1);
      store(out + i, o0);
      store(out + i + kBlock<S>, o1);
    }
    for (; i + kBlock<S> <= g.end; i += kBlock<S>) store(out + i, apply(op, load(x + i)));
    if (const int64_t n = g.end - i; n > 0) store_n(out + i, apply(op, load_n(x + i, n)), n);
  }
}

// ---- interleaved gate and up ----

template <class T>
void swigluoai(const ElementwiseArgs& g) {
  using S = Acc<T>;
  using V = Vec<S>;
  const double alpha = g.p0;
  const V limit = splat<V>(S(g.p1));
  const auto f = [&](V gate, V up) VLLM_OPS_INLINE_LAMBDA {
    gate = clamp_max(gate, limit);
    up = clamp_both(up, limit);
    return (up + S(1)) * sigmoid_linear<T>(gate, alpha);
  };
  for (int64_t r = 0; r < g.rows; ++r) {
    const T* x = static_cast<const T*>(g.x) + r * g.x_stride;
    T* out = static_cast<T*>(g.out) + r * g.out_stride;
    int64_t i = g.begin;
    for (; i + kBlock<S> <= g.end; i += kBlock<S>) {
      const Block<S> lo = deinterleave(load(x + 2 * i));
      const Block<S> hi = deinterleave(load(x + 2 * i + kBlock<S>));
      store(out + i, Block<S>{f(lo.a, lo.b), f(hi.a, hi.b)});
    }
    if (const int64_t n = g.end - i; n > 0) {
      T tail[2 * kBlock<S>] = {};
      for (int64_t k = 0; k < 2 * n; ++k) tail[k] = x[2 * i + k];
      const Block<S> lo = deinterleave(load(tail));
      const Block<S> hi = deinterleave(load(tail + kBlock<S>));
      store_n(out + i, Block<S>{f(lo.a, lo.b), f(hi.a, hi.b)}, n);
    }
  }
}

#define VLLM_OPS_GATED(Op)                                                            \
  {gated<float, Op<float>>, gated<BF16EvenOdd, Op<BF16EvenOdd>>, gated<F16, Op<F16>>, \
   gated<double, Op<double>>}
#define VLLM_OPS_UNARY(Op)                                                            \
  {unary<float, Op<float>>, unary<BF16EvenOdd, Op<BF16EvenOdd>>, unary<F16, Op<F16>>, \
   unary<double, Op<double>>}

}  // namespace

extern const ActivationTable VLLM_OPS_TABLE(activation);
const ActivationTable VLLM_OPS_TABLE(activation) = {
    {
        VLLM_OPS_GATED(SiluAndMul),
        VLLM_OPS_GATED(MulAndSilu),
        VLLM_OPS_GATED(GeluAndMul),
        VLLM_OPS_GATED(GeluTanhAndMul),
        VLLM_OPS_GATED(FatreluAndMul),
        VLLM_OPS_GATED(SiluAndMulClamp),
        {swigluoai<float>, swigluoai<BF16>, swigluoai<F16>, swigluoai<double>},
    },
    {
        VLLM_OPS_UNARY(Gelu),
        VLLM_OPS_UNARY(GeluTanh),
        VLLM_OPS_UNARY(GeluFast),
        VLLM_OPS_UNARY(QuickGelu),
        VLLM_OPS_UNARY(Relu2),
        VLLM_OPS_UNARY(Xielu),
    },
};

}  // namespace vllm_ops
