// SPDX-License-Identifier: Apache-2.0
// Row sums whose order depends on the row's length alone, and whose error does not grow with it.
//
// Four vectors of the accumulation type run chains of 16 terms; then the chains are folded into
// doubles (for fp64 into a double with a compensation). For 4096 elements of fp32 on 16 lanes that
// is closer to the exact sum than a pairwise sum in fp32, and costs one conversion per 32 elements.
#pragma once

#include "convert.h"

namespace vllm_ops {
namespace {

VLLM_OPS_INLINE void to_double(VF v, VD& lo, VD& hi) {
#if defined(VLLM_OPS_AVX512)
  lo = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
  hi = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
#elif defined(VLLM_OPS_AVX2)
  lo = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
  hi = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
#elif defined(__x86_64__)
  lo = _mm_cvtps_pd(v);
  hi = _mm_cvtps_pd(_mm_movehl_ps(v, v));
#else
  lo = VD{v[0], v[1]};
  hi = VD{v[2], v[3]};
#endif
}

template <int Step, int... I>
VLLM_OPS_INLINE VD add_lanes(VD v, Ints<I...>) {
  return v + __builtin_shufflevector(v, v, (I ^ Step)...);
}
VLLM_OPS_INLINE double lanes_sum(VD v) {
  constexpr Counting<kLanes<double>> lanes;
#if VLLM_OPS_VEC_BYTES > 32
  v = add_lanes<4>(v, lanes);
#endif
#if VLLM_OPS_VEC_BYTES > 16
  v = add_lanes<2>(v, lanes);
#endif
  v = add_lanes<1>(v, lanes);
  return v[0];
}

template <class S>
class RowSum;

template <>
class RowSum<float> {
 public:
  VLLM_OPS_INLINE void fold(VF v) {
    VD a, b;
    to_double(v, a, b);
    lo_ += a;
    hi_ += b;
  }
  VLLM_OPS_INLINE double total() const { return lanes_sum(lo_ + hi_); }

 private:
  VD lo_{}, hi_{};
};

template <>
class RowSum<double> {
 public:
  VLLM_OPS_INLINE void fold(VD v) {
    const VD sum = sum_ + v;
    const VD back = sum - sum_;
    rest_ += (sum_ - (sum - back)) + (v - back);
    sum_ = sum;
  }
  VLLM_OPS_INLINE double total() const {
    double s = 0, rest = 0;
    for (int i = 0; i < kLanes<double>; ++i) {
      const double sum = s + sum_[i], back = sum - s;
      rest += (s - (sum - back)) + (sum_[i] - back) + rest_[i];
      s = sum;
    }
    // Infinity minus infinity in the compensation must not turn an infinite sum into NaN.
    return rest == rest ? s + rest : s;
  }

 private:
  VD sum_{}, rest_{};
};

constexpr int kChain = 16;

// The sum over i < n of term(b) for the blocks b that `block(i)` and `tail(i, n - i)` deliver.
// term(acc, v) adds the terms of v to acc. Each block is asked for once, in order, so it may have
// side effects.
template <class S, class BlockFn, class TailFn, class Term>
VLLM_OPS_INLINE double row_sum(int64_t n, BlockFn block, TailFn tail, Term term) {
  RowSum<S> sum;
  int64_t i = 0;
  while (i + 2 * kBlock<S> <= n) {
    Block<S> even{}, odd{};
    const int64_t left = (n - i) / (2 * kBlock<S>);
    for (int64_t k = left < kChain ? left : kChain; k > 0; --k, i += 2 * kBlock<S>) {
      const Block<S> u = block(i), v = block(i + kBlock<S>);
      even = map<S>(even, u, term);
      odd = map<S>(odd, v, term);
    }
    sum.fold((even.a + even.b) + (odd.a + odd.b));
  }
  if (i == n) return sum.total();
  Block<S> rest{};
  if (i + kBlock<S> <= n) {
    rest = map<S>(rest, block(i), term);
    i += kBlock<S>;
  }
  if (i < n) rest = map<S>(rest, tail(i, n - i), term);
  sum.fold(rest.a + rest.b);
  return sum.total();
}

struct AddSquare {
  template <class V>
  VLLM_OPS_INLINE V operator()(V acc, V v) const {
    return fma(v, v, acc);
  }
};

struct AddValue {
  template <class V>
  VLLM_OPS_INLINE V operator()(V acc, V v) const {
    return acc + v;
  }
};

// The sum of a row. fp32 values go straight into doubles: an error of the mean is an error of every
// x - mean, however small that is.
template <class T>
VLLM_OPS_INLINE double sum_values(const T* x, int64_t n) {
  const auto block = [x](int64_t i) VLLM_OPS_INLINE_LAMBDA { return load(x + i); };
  const auto tail = [x](int64_t i, int64_t m) VLLM_OPS_INLINE_LAMBDA { return load_n(x + i, m); };
  if constexpr (sizeof(T) == 4) {
    RowSum<float> even, odd;
    int64_t i = 0;
    for (; i + kBlock<float> <= n; i += kBlock<float>) {
      const Block<float> v = block(i);
      even.fold(v.a);
      odd.fold(v.b);
    }
    if (i < n) {
      const Block<float> v = tail(i, n - i);
      even.fold(v.a);
      odd.fold(v.b);
    }
    return even.total() + odd.total();
  } else {
    return row_sum<Acc<T>>(n, block, tail, AddValue{});
  }
}

template <class T>
VLLM_OPS_INLINE double sum_squares(const T* x, int64_t n) {
  return row_sum<Acc<T>>(
      n, [x](int64_t i) VLLM_OPS_INLINE_LAMBDA { return load(x + i); },
      [x](int64_t i, int64_t m) VLLM_OPS_INLINE_LAMBDA { return load_n(x + i, m); }, AddSquare{});
}

// 1 / sqrt(mean_square + eps), in double and rounded once; 0 where that sum is 0, so that a row of
// zeros with an eps of 0 gives zeros. As in the reference, the sum is a number of the accumulation
// type: for fp32, squares below 1e-45 are zeros, and their mean is not what is left in a double.
template <class S>
VLLM_OPS_INLINE S inverse_root(double mean_square, double eps) {
  double total = mean_square + eps;
  if constexpr (sizeof(S) == 4) {
    constexpr double kSmallestNormal = 0x1p-126;
    if (__builtin_expect(total < kSmallestNormal, 0)) total = float(mean_square) + float(eps);
  }
  return total == 0.0 ? S(0) : S(1.0 / __builtin_sqrt(total));
}

}  // namespace
}  // namespace vllm_ops
