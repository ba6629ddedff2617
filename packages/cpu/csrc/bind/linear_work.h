// SPDX-License-Identifier: Apache-2.0
// What linear and linear_int8 share: the run of a kernel over all rows and channels.
#pragma once

#include "common.h"
#include "rows.h"

namespace vllm_ops {

struct LinearWork {
  const LinearTable& table;
  LinearPackFn pack;
  LinearFn kernel;
  int dtype = kF32;  // of x, the bias and the result
  const void* x = nullptr;
  int64_t x_step = 1;  // from element to element of a row
  const void* weight = nullptr;
  int64_t weight_bytes = 0;  // of an element
  int64_t weight_stride = 0, weight_step = 1;
  const float* scale = nullptr;  // of an int8 weight
  int64_t scale_stride = 0;
  const void* bias = nullptr;
  int64_t bias_stride = 0;
  void* out = nullptr;  // contiguous
  int64_t k = 0, channels = 0;
};

// `grid` walks the rows of x.
void run(const LinearWork& work, const RowGrid<1>& grid);

// One widened row of more elements would be more memory than is promised.
constexpr int64_t kLongestRow = int64_t{1} << 20;

}  // namespace vllm_ops
