// SPDX-License-Identifier: Apache-2.0
// Binding of linear: checks, and the way to torch's own.
#include "common.h"
#include "linear_path.h"
#include "linear_work.h"
#include "register.h"

namespace vllm_ops {
namespace {

constexpr auto kOp = "linear";

bool is_contiguous(const Meta& m) {
  int64_t stride = 1;
  for (int64_t i = m.dim - 1; i >= 0; --i) {
    if (m.sizes[i] != 1 && m.strides[i] != stride) return false;
    stride *= std::max<int64_t>(1, m.sizes[i]);
  }
  return true;
}

AtenTensorHandle another_handle(const Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  VLLM_OPS_SHIM(aoti_torch_new_tensor_handle(tensor.get(), &handle));
  return handle;
}

// A contiguous tensor, seen in another contiguous shape.
Tensor view(const Tensor& tensor, const int64_t* sizes, int64_t dim) {
  int64_t strides[64], offset = 0;
  for (int64_t i = dim - 1, stride = 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(1, sizes[i]);
  }
  AtenTensorHandle handle = nullptr;
  VLLM_OPS_SHIM(aoti_torch_get_storage_offset(tensor.get(), &offset));
  VLLM_OPS_SHIM(aoti_torch__reinterpret_tensor(tensor.get(), dim, sizes, strides, offset, &handle));
  return Tensor(handle);
}

// torch's own, always of two dimensions: in some others it rounds the product before it adds the
// bias.
Tensor native(Tensor x, const Tensor& weight, const Tensor& bias, const int64_t* out_sizes) {
  const Meta m = meta(x);
  const int64_t dim = m.dim;
  if (dim != 2) {
    const int64_t k = m.last();
    int64_t rows = 1;
    for (int64_t i = 0; i + 1 < dim; ++i) rows *= m.sizes[i];
    if (!is_contiguous(m)) x = contiguous(x);
    const int64_t flat[2] = {rows, k};
    x = view(x, flat, 2);
  }
  std::optional<AtenTensorHandle> b;
  if (bias) b = another_handle(bias);
  StableIValue stack[3] = {torch::stable::detail::from(another_handle(x)),
                           torch::stable::detail::from(another_handle(weight)),
                           torch::stable::detail::from(b)};
  VLLM_OPS_SHIM(torch_call_dispatcher("aten::linear", "", stack, TORCH_ABI_VERSION));
  Tensor out(stack[0]);
  if (!is_contiguous(meta(out))) out = contiguous(out);
  return dim == 2 ? std::move(out) : view(out, out_sizes, dim);
}

void check_parameter(const char* name, const Meta& m, const Meta& x) {
  VLLM_OPS_CHECK(m.dtype == x.dtype, kOp, name, " must be ", dtype_name(x.dtype), ", got ",
                 dtype_name(m.dtype));
}

void boxed_linear(StableIValue* stack, uint64_t num_args, uint64_t) {
  check_arity(kOp, num_args, 3);
  Tensor x(stack[0]), weight(stack[1]);
  Tensor bias = optional_tensor(stack[2]);
  const Meta m = check_floating(kOp, "x", x);
  const Meta w = check_any_floating(kOp, "weight", "x", weight);
  check_parameter("weight", w, m);
  VLLM_OPS_CHECK(w.dim == 2, kOp, "weight must have 2 dimensions, got ", w.dim);
  VLLM_OPS_CHECK(w.sizes[1] == m.last(), kOp, "x must have ", w.sizes[1],
                 " elements in the last dimension, got ", m.last());
  Meta b;
  if (bias) {
    b = check_any_floating(kOp, "bias", "x", bias);
    check_parameter("bias", b, m);
    if (b.dim != 1)
      fail(kOp, "bias must have ", w.sizes[0], " elements, got shape ", shape_string(b));
    VLLM_OPS_CHECK(b.last() == w.sizes[0], kOp, "bias must have ", w.sizes[0], " elements, got ",
                   b.last());
  }
  const int dtype = dtype_index(m.dtype);
  static const int64_t most_rows[kNumDTypes] = {0, linear_path(linear_report(), kBF16).most_rows,
                                                linear_path(linear_report(), kF16).most_rows, 0};
  int64_t sizes[64];
  std::copy(m.sizes, m.sizes + m.dim, sizes);
  sizes[m.dim - 1] = w.sizes[0];
  const RowGrid<1> grid(m.sizes, m.dim - 1, {m.strides});
  if (most_rows[dtype] == 0 || grid.rows() > most_rows[dtype] || m.last() > kLongestRow) {
    stack[0] = native(std::move(x), weight, bias, sizes).release();
    return;
  }
  Tensor out = empty(sizes, m.dim, m.dtype);
  const LinearTable& table = *kernels().linear;
  LinearWork work{table, table.pack[dtype], table.linear[dtype]};
  work.dtype = dtype;
  work.x = data(x);
  work.x_step = m.strides[m.dim - 1];
  work.weight = data(weight);
  work.weight_bytes = 2;
  work.weight_stride = w.strides[0];
  work.weight_step = w.unit_last_stride() ? 1 : w.strides[1];
  if (bias) {
    work.bias = data(bias);
    work.bias_stride = b.strides[0];
  }
  work.out = mutable_data(out);
  work.k = m.last();
  work.channels = w.sizes[0];
  run(work, grid);
  stack[0] = out.release();
}

}  // namespace

void register_linear(Library& m) { m.impl("linear", &boxed_linear); }

}  // namespace vllm_ops
