// SPDX-License-Identifier: Apache-2.0
// Rows of several tensors of one shape, walked together.
//
// The leading dimensions are merged where all tensors allow it; what remains is walked, so that a
// transposed view, a slice of a fused projection or an expanded dimension is read where it lies.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdint>

namespace vllm_ops {

template <int K>
class RowGrid {
 public:
  // `strides[k]` belongs to tensor k and counts its elements.
  RowGrid(const int64_t* sizes, int64_t dim, const int64_t* const (&strides)[K]) {
    for (int64_t d = dim - 1; d >= 0; --d) {
      const int64_t size = sizes[d];
      rows_ *= size;
      if (size == 1) continue;
      bool merge = dim_ > 0;
      for (int k = 0; merge && k < K; ++k) {
        merge = strides[k][d] == stride_[dim_ - 1][k] * size_[dim_ - 1];
      }
      if (merge) {
        size_[dim_ - 1] *= size;
        continue;
      }
      size_[dim_] = size;
      for (int k = 0; k < K; ++k) stride_[dim_][k] = strides[k][d];
      ++dim_;
    }
    if (dim_ == 0) {
      size_[0] = 1;
      for (int k = 0; k < K; ++k) stride_[0][k] = 0;
      dim_ = 1;
    }
  }

  int64_t rows() const { return rows_; }
  // The distance between neighbouring rows within a run.
  const int64_t* inner_strides() const { return stride_[0]; }

  // Calls f(row, offsets[K], count) for runs of rows that share the inner strides.
  template <class F>
  void for_runs(int64_t begin, int64_t end, const F& f) const {
    while (begin < end) {
      int64_t rest = begin, first = 0;
      int64_t offset[K] = {};
      for (int d = 0; d < dim_; ++d) {
        const int64_t index = d + 1 == dim_ ? rest : rest % size_[d];
        rest /= size_[d];
        if (d == 0) first = index;
        for (int k = 0; k < K; ++k) offset[k] += index * stride_[d][k];
      }
      const int64_t count = std::min(end - begin, size_[0] - first);
      f(begin, offset, count);
      begin += count;
    }
  }

 private:
  int64_t rows_ = 1;
  int dim_ = 0;
  int64_t size_[64];
  int64_t stride_[64][K];
};

// A thread gets no less than this many elements, 5 to 10 us of work: waking one costs 2 us.
constexpr int64_t kGrain = 32768;

// f(begin, end) over rows of `cols` elements; `cost` is that of an element, see KernelTable.
template <class F>
void parallel_rows(int64_t rows, int64_t cols, const F& f, int64_t cost = 1) {
  if (rows <= 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, cols * cost));
  if (rows <= grain) {
    f(int64_t{0}, rows);
  } else {
    torch::stable::parallel_for(0, rows, grain, f);
  }
}

// dtype sizes in bytes by the kernels' dtype index.
constexpr int64_t kElementSize[] = {4, 2, 2, 8};

inline const void* at(const void* base, int64_t elements, int dtype) {
  return static_cast<const char*>(base) + elements * kElementSize[dtype];
}
inline void* at(void* base, int64_t elements, int dtype) {
  return static_cast<char*>(base) + elements * kElementSize[dtype];
}

}  // namespace vllm_ops
