// SPDX-License-Identifier: Apache-2.0
// x weight^T + bias for 16-bit and 8-bit weights of one ISA tier: fp32 accumulation, one rounding.
// The order of addition is that of dot.h, for any number of rows.
#include "dot.h"
#include "table.h"

namespace vllm_ops {
namespace {

constexpr int kMaxRows = 5;  // of x in one tile

// Output channels in a tile of `rows` rows: as many accumulators as the registers hold beside the
// operands, and at least eight, since a multiply-add takes four cycles and two start in each.
// Measured with GCC 12, AVX2, in cache, gigaflops of 138: 1x8 115, 2x4 118, 3x3 123, 4x2 111, 5x2
// 127, while 4x3 and 3x4 spill and reach 65.
constexpr int channels(int rows) {
#if defined(VLLM_OPS_AVX512) || defined(__aarch64__)
  return rows == 1 ? 8 : rows == 2 ? 6 : 4;
#else
  return rows == 1 ? 8 : rows == 2 ? 4 : rows == 3 ? 3 : 2;
#endif
}

// What a chunk of k adds to the accumulators of `rows` rows and `channels` channels.
template <class T>
struct Chunk {
  const T* w;
  int64_t w_stride;
  const float* x;
  int64_t x_stride;
  int64_t k;
  int64_t ahead;
  VF* acc;
  int64_t channels;
  bool start;
};

template <int MR, int NR, class T>
void tile(const Chunk<T>& c, int64_t m, int64_t n) {
  VF acc[MR][NR];
  VF* saved = c.acc + m * kLinearChannels + n;
  VLLM_OPS_UNROLL
  for (int i = 0; i < MR; ++i) {
    VLLM_OPS_UNROLL
    for (int j = 0; j < NR; ++j) acc[i][j] = c.start ? VF{} : saved[i * kLinearChannels + j];
  }
  dot_tile(c.w + n * c.w_stride, c.w_stride, c.x + m * c.x_stride, c.x_stride, c.k, c.ahead, acc);
  VLLM_OPS_UNROLL
  for (int i = 0; i < MR; ++i) {
    VLLM_OPS_UNROLL
    for (int j = 0; j < NR; ++j) saved[i * kLinearChannels + j] = acc[i][j];
  }
}

template <int MR, class T>
void strip(const Chunk<T>& c, int64_t m) {
  constexpr int NR = channels(MR);
  int64_t n = 0;
  for (; n + NR <= c.channels; n += NR) tile<MR, NR>(c, m, n);
  for (; n < c.channels; ++n) tile<MR, 1>(c, m, n);
}

// Tiles of five and three rows where they add up, as they do from eight rows on: they are faster
// than four (see above).
constexpr int64_t tile_height(int64_t rows) {
  return rows <= kMaxRows ? rows : rows == 7 ? 4 : rows % 5 == 0 ? 5 : 3;
}

template <class T>
void accumulate(const Chunk<T>& c, int64_t rows) {
  if (c.k == 0) return;
  for (int64_t m = 0; m < rows;) {
    const int64_t height = tile_height(rows - m);
    switch (height) {
      case 1:
        strip<1>(c, m);
        break;
      case 2:
        strip<2>(c, m);
        break;
      case 3:
        strip<3>(c, m);
        break;
      case 4:
        strip<4>(c, m);
        break;
      default:
        strip<kMaxRows>(c, m);
    }
    m += height;
  }
}

// k elements, `step` apart, as the loaders of a weight of W want them; the last step is filled up
// with zeros.
template <class W, class T>
void widen(const T* from, int64_t step, int64_t k, float* to) {
  const auto put = [](const T* p, float* q) VLLM_OPS_INLINE_LAMBDA {
    if constexpr (sizeof(W) == 1) {
      store(q, load(p));
    } else {
      store_vec<float>(q, first(p));
      store_vec<float>(q + kDotLanes, second(p));
    }
  };
  int64_t i = 0;
  if (step == 1) {
    for (; i + kDotStep <= k; i += kDotStep) put(from + i, to + i);
  }
  for (; i < k; i += kDotStep) {
    T copy[kDotStep] = {};
    const int64_t n = k - i < kDotStep ? k - i : kDotStep;
    for (int64_t j = 0; j < n; ++j) copy[j] = from[(i + j) * step];
    put(copy, to + i);
  }
}

// One row of x, cut into chunks; the same chunk of all rows lies together.
template <class W, class T>
void pack(const LinearPackArgs& g) {
  const T* from = static_cast<const T*>(g.x);
  for (int64_t k = 0; k < g.k; k += g.chunk) {
    const int64_t count = g.k - k < g.chunk ? g.k - k : g.chunk;
    const int64_t padded = (count + kDotStep - 1) / kDotStep * kDotStep;
    widen<W>(from + k * g.x_step, g.x_step, count, g.to + k * g.rows + g.row * padded);
  }
}

template <class W, class T>
void round_rows(const LinearArgs& g, const VF* acc) {
  constexpr bool scaled = sizeof(W) == 1;
  float bias[kLinearChannels + kDotStep] = {};
  float scale[kLinearChannels + kDotStep] = {};
  if constexpr (scaled) {
    for (int64_t n = 0; n < g.channels; ++n) scale[n] = g.scale[n * g.scale_stride];
  }
  if (g.bias != nullptr) {
    T copy[kDotStep] = {};
    for (int64_t n = 0; n < g.channels; n += kDotStep) {
      const int64_t count = g.channels - n < kDotStep ? g.channels - n : kDotStep;
      for (int64_t j = 0; j < count; ++j) {
        copy[j] = static_cast<const T*>(g.bias)[(n + j) * g.bias_stride];
      }
      store(bias + n, load(copy));
    }
  }
  for (int64_t m = 0; m < g.rows; ++m, acc += kLinearChannels) {
    T* out = static_cast<T*>(g.out) + m * g.out_stride;
    for (int64_t n = 0; n < g.channels; n += kDotStep) {
      Block<float> sum = {sums<kDotLanes>(acc + n), sums<kDotLanes>(acc + n + kDotLanes)};
      if constexpr (scaled) {
        const Block<float> by = load(scale + n);
        sum = {sum.a * by.a, sum.b * by.b};
      }
      const Block<float> b = load(bias + n);
      sum = {sum.a + b.a, sum.b + b.b};
      if (g.channels - n >= kDotStep) {
        store(out + n, sum);
      } else {
        store_n(out + n, sum, g.channels - n);
      }
    }
  }
}

// A weight of W and everything else in T.
template <class W, class T>
void linear(const LinearArgs& g) {
  const W* w = static_cast<const W*>(g.weight);
  VF* acc = static_cast<VF*>(g.sums);
  if (g.k == 0 || g.channels < kLinearChannels) {
    for (int64_t i = 0; i < g.rows * kLinearChannels; ++i) acc[i] = VF{};
  }
  for (int64_t k = 0; k < g.k; k += g.chunk) {
    const int64_t count = g.k - k < g.chunk ? g.k - k : g.chunk;
    const int64_t whole = count / kDotStep * kDotStep;
    const int64_t padded = whole == count ? count : whole + kDotStep;
    const float* x = g.x + k * g.rows;
    if constexpr (sizeof(W) > 1) {
      if (g.wide != nullptr) {
        for (int64_t n = 0; n < g.channels; ++n) {
          widen<W>(w + n * g.weight_stride + k * g.weight_step, g.weight_step, count,
                   g.wide + n * padded);
        }
        accumulate<float>({g.wide, padded, x, padded, padded, 0, acc, g.channels, k == 0}, g.rows);
        continue;
      }
    }
    const int64_t ahead = k + g.chunk < g.k ? g.chunk : g.next - k;
    accumulate<W>({w + k, g.weight_stride, x, padded, whole, ahead, acc, g.channels, k == 0},
                  g.rows);
    if (whole == count) continue;
    W rest[kLinearChannels * kDotStep] = {};
    for (int64_t n = 0; n < g.channels; ++n) {
      for (int64_t i = whole; i < count; ++i) {
        rest[n * kDotStep + i - whole] = w[n * g.weight_stride + k + i];
      }
    }
    accumulate<W>(
        {rest, kDotStep, x + whole, padded, kDotStep, 0, acc, g.channels, k == 0 && whole == 0},
        g.rows);
  }
  round_rows<W, T>(g, acc);
}

}  // namespace

extern const LinearTable VLLM_OPS_TABLE(linear);
const LinearTable VLLM_OPS_TABLE(linear) = {
    kDotStep,
    kVecBytes,
    {nullptr, pack<BF16, BF16>, pack<F16, F16>, nullptr},
    {nullptr, linear<BF16, BF16>, linear<F16, F16>, nullptr},
    {pack<I8, float>, pack<I8, BF16>, pack<I8, F16>, nullptr},
    {linear<I8, float>, linear<I8, BF16Checked>, linear<I8, F16>, nullptr}};

}  // namespace vllm_ops
