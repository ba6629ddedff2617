// SPDX-License-Identifier: Apache-2.0
// Weights of norms: checked, and widened once per call if their dtype is neither that of x nor the
// accumulation type.
#pragma once

#include <memory>

#include "common.h"

namespace vllm_ops {

// float for everything but double.
inline int wide_dtype(int dtype) { return dtype == kF64 ? kF64 : kF32; }

void check_eps(const char* op, double eps);

// A contiguous vector in the dtype of x or in the accumulation type.
class Weight {
 public:
  // `always_wide` asks for the accumulation type.
  Weight(const char* op, const Tensor& weight, const Meta& x, const char* name = "weight",
         bool always_wide = false);

  const void* data() const { return data_; }
  WeightKind kind() const { return kind_; }

 private:
  Tensor copy_;
  std::unique_ptr<double[]> buffer_;
  const void* data_ = nullptr;
  WeightKind kind_ = kNoWeight;
};

// n values of any floating dtype in the accumulation type `wide`, kF32 or kF64.
void widen(const void* src, int dtype, void* dst, int wide, int64_t n);

// A contiguous copy of a floating tensor in the accumulation type `wide`.
Tensor wider_copy(const Tensor& tensor, const Meta& m, int wide);

}  // namespace vllm_ops
