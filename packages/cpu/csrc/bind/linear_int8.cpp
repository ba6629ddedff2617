// SPDX-License-Identifier: Apache-2.0
// Binding of linear_int8: checks, and the way to the reference.
#include "common.h"
#include "linear_work.h"
#include "register.h"

namespace vllm_ops {
namespace {

constexpr auto kOp = "linear_int8";

// fp64, which is for comparisons, and rows that are too long.
void reference(StableIValue* stack) {
  VLLM_OPS_SHIM(
      torch_call_dispatcher("vllm_ops_native::linear_int8", "", stack, TORCH_ABI_VERSION));
}

void boxed_linear_int8(StableIValue* stack, uint64_t num_args, uint64_t) {
  check_arity(kOp, num_args, 4);
  Tensor x(stack[0]), weight(stack[1]), scale(stack[2]);
  Tensor bias = optional_tensor(stack[3]);
  const Meta m = check_floating(kOp, "x", x);
  const Meta w = check_cpu(kOp, "weight", "x", weight);
  VLLM_OPS_CHECK(w.dtype == aoti_torch_dtype_int8(), kOp, "weight must be int8, got ",
                 dtype_name(w.dtype));
  VLLM_OPS_CHECK(w.dim == 2, kOp, "weight must have 2 dimensions, got ", w.dim);
  VLLM_OPS_CHECK(w.sizes[1] == m.last(), kOp, "x must have ", w.sizes[1],
                 " elements in the last dimension, got ", m.last());
  const int64_t channels = w.sizes[0];
  const auto check_vector = [&](const char* name, const Tensor& tensor, int32_t dtype, bool exact) {
    const Meta v =
        exact ? check_cpu(kOp, name, "x", tensor) : check_any_floating(kOp, name, "x", tensor);
    VLLM_OPS_CHECK(v.dtype == dtype, kOp, name, " must be ", dtype_name(dtype), ", got ",
                   dtype_name(v.dtype));
    if (v.dim != 1)
      fail(kOp, name, " must have ", channels, " elements, got shape ", shape_string(v));
    VLLM_OPS_CHECK(v.last() == channels, kOp, name, " must have ", channels, " elements, got ",
                   v.last());
    return v;
  };
  const Meta s = check_vector("scale", scale, aoti_torch_dtype_float32(), true);
  Meta b;
  if (bias) b = check_vector("bias", bias, m.dtype, false);
  const int dtype = dtype_index(m.dtype);
  const LinearTable& table = *kernels().linear;
  if (table.linear_int8[dtype] == nullptr || m.last() > kLongestRow) {
    StableIValue call[4] = {x.release(), weight.release(), scale.release(),
                            bias.release_optional()};
    reference(call);
    stack[0] = call[0];
    return;
  }
  Meta dense = w;
  require_unit_stride(weight, dense);
  int64_t sizes[64];
  std::copy(m.sizes, m.sizes + m.dim, sizes);
  sizes[m.dim - 1] = channels;
  Tensor out = empty(sizes, m.dim, m.dtype);
  LinearWork work{table, table.pack_int8[dtype], table.linear_int8[dtype]};
  work.dtype = dtype;
  work.x = data(x);
  work.x_step = m.strides[m.dim - 1];
  work.weight = data(weight);
  work.weight_bytes = 1;
  work.weight_stride = dense.strides[0];
  work.scale = static_cast<const float*>(data(scale));
  work.scale_stride = s.strides[0];
  if (bias) {
    work.bias = data(bias);
    work.bias_stride = b.strides[0];
  }
  work.out = mutable_data(out);
  work.k = m.last();
  work.channels = channels;
  run(work, RowGrid<1>(m.sizes, m.dim - 1, {m.strides}));
  stack[0] = out.release();
}

}  // namespace

void register_linear_int8(Library& m) { m.impl("linear_int8", &boxed_linear_int8); }

}  // namespace vllm_ops
