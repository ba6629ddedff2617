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
  const Meta m = check_any_floating(op, name, "x", weight);
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

}  // namespace vllm_ops
