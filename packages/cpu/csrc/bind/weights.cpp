// SPDX-License-Identifier: Apache-2.0
#include "weights.h"

#include "rows.h"

namespace vllm_ops {

void check_eps(const char* op, double eps) {
  VLLM_OPS_CHECK(eps >= 0, op, "eps must not be negative, got ", number(eps));
}

void widen(const void* src, int dtype, void* dst, int wide, int64_t n) {
  const RotaryTable& table = *kernels().rotary;
  (wide == kF64 ? table.widen_to_double : table.widen_to_float)[dtype](src, dst, n);
}

Weight::Weight(const char* op, const Tensor& weight, const Meta& x, const char* name,
               bool always_wide) {
  if (!weight) return;
  const Meta m = check_floating(op, name, weight);
  const int64_t n = x.last();
  VLLM_OPS_CHECK(m.dim == 1 && m.sizes[0] == n, op, name, " must have ", n, " elements, got ",
                 m.dim == 1 ? std::to_string(m.sizes[0]) : "shape " + shape_string(m));
  const int dtype = dtype_index(m.dtype), wide = wide_dtype(dtype_index(x.dtype));
  const Tensor* source = &weight;
  if (!m.unit_last_stride()) {
    copy_ = contiguous(weight);
    source = &copy_;
  }
  data_ = vllm_ops::data(*source);
  kind_ = dtype == wide ? kWideWeight : kSameWeight;
  if (dtype == wide || (m.dtype == x.dtype && !always_wide)) return;
  buffer_.reset(new double[n]);  // enough for either type
  widen(data_, dtype, buffer_.get(), wide, n);
  data_ = buffer_.get();
  kind_ = kWideWeight;
}

Tensor wider_copy(const Tensor& tensor, const Meta& m, int wide) {
  Tensor copy =
      empty(m.sizes, m.dim, wide == kF64 ? aoti_torch_dtype_float64() : aoti_torch_dtype_float32());
  copy_(copy, tensor);
  return copy;
}

void check_writable(const char* op, const char* name, const Meta& m) {
  for (int64_t i = 0; i < m.dim; ++i) {
    VLLM_OPS_CHECK(m.strides[i] != 0 || m.sizes[i] <= 1, op, name,
                   " must not be expanded, as it is written in place, got strides ",
                   shape_string(m.strides, m.dim));
  }
}

bool may_overlap(const Tensor& a, const Meta& am, const Tensor& b, const Meta& bm) {
  const auto range = [](const Tensor& t, const Meta& m) {
    const char* begin = static_cast<const char*>(data(t));
    const int64_t size = kElementSize[dtype_index(m.dtype)];
    int64_t last = size;
    for (int64_t i = 0; i < m.dim; ++i) {
      if (m.sizes[i] == 0) return std::pair(begin, begin);
      last += (m.sizes[i] - 1) * m.strides[i] * size;
    }
    return std::pair(begin, begin + last);
  };
  const auto [a0, a1] = range(a, am);
  const auto [b0, b1] = range(b, bm);
  return a0 < b1 && b0 < a1;
}

}  // namespace vllm_ops
