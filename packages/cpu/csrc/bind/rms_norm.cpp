// SPDX-License-Identifier: Apache-2.0
// Bindings of rms_norm, fused_add_rms_norm and their in-place forms.
#include "common.h"
#include "register.h"
#include "rows.h"
#include "weights.h"

namespace vllm_ops {
namespace {

struct RmsArguments {
  Tensor weight;
  double eps;
  std::optional<int64_t> variance_size;
  double weight_offset;
  bool round_before_weight;

  // The five arguments after the tensors.
  explicit RmsArguments(const StableIValue* stack)
      : weight(optional_tensor(stack[0])),
        eps(to<double>(stack[1])),
        variance_size(to<std::optional<int64_t>>(stack[2])),
        weight_offset(to<double>(stack[3])),
        round_before_weight(to<bool>(stack[4])) {}
};

// Checks the arguments and fills what does not differ from run to run.
RmsNormArgs prepare(const char* op, const Meta& m, const RmsArguments& a, const Weight& weight) {
  check_eps(op, a.eps);
  RmsNormArgs args{};
  args.weight = weight.data();
  args.cols = m.last();
  args.variance_size = a.variance_size.value_or(m.last());
  args.eps = a.eps;
  args.weight_offset = a.weight_offset;
  args.round_before_weight = a.round_before_weight;
  VLLM_OPS_CHECK(!a.variance_size || (*a.variance_size > 0 && *a.variance_size <= m.last()), op,
                 "variance_size must be between 1 and ", m.last(), ", got ",
                 a.variance_size.value_or(0));
  return args;
}

// Whether a thread should walk its rows from the last to the first: the first thread of a call that
// works in place, on rows that lie in its cache. The processor reads ahead of a thread, beyond its
// last row too, and so takes lines away from the neighbour who has just written them (32 rows of
// 4096 in fp32: 8.8 us, or 5.9 when the two threads leave from where their rows meet). Rows from
// memory are better read upwards (fused, 1024 in fp32: 420 us, downwards 480).
bool downwards(bool in_place, int64_t begin, int64_t end, int64_t rows, int64_t row_bytes) {
  return in_place && begin == 0 && end < rows && end * row_bytes <= int64_t{1} << 19;
}

// x is read and out written, both in place; they may be the same tensor.
void run_rms_norm(const char* op, const Tensor& x, const Meta& xm, const Tensor& out,
                  const Meta& om, const RmsArguments& a) {
  const int dtype = dtype_index(xm.dtype);
  const Weight weight(op, a.weight, xm);
  const RmsNormArgs common = prepare(op, xm, a, weight);
  const RmsNormFn fn = kernels().rms_norm->rms_norm[weight.kind()][dtype];
  const RowGrid<2> grid(xm.sizes, xm.dim - 1, {xm.strides, om.strides});
  if (grid.rows() <= 0 || common.cols == 0) return;
  const int64_t row_bytes = common.cols * kElementSize[dtype];
  void* result = mutable_data(out);
  const void* in = data(x);
  parallel_rows(grid.rows(), common.cols, [&](int64_t begin, int64_t end) {
    const int64_t step = downwards(in == result, begin, end, grid.rows(), row_bytes) ? -1 : 1;
    RmsNormArgs args = common;
    args.x_stride = step * grid.inner_strides()[0];
    args.out_stride = step * grid.inner_strides()[1];
    args.rows = 0;
    int64_t at_x = 0;
    // One run behind, so that the kernel knows which rows come next.
    const auto flush = [&](int64_t next) {
      args.x_next = next;
      if (args.rows > 0) fn(args);
    };
    grid.for_runs(begin, end, [&](int64_t, const int64_t* offset, int64_t count) {
      flush(offset[0] - at_x);
      at_x = offset[0];
      const int64_t last = step < 0 ? count - 1 : 0;
      args.x = at(in, offset[0] - last * args.x_stride, dtype);
      args.out = at(result, offset[1] - last * args.out_stride, dtype);
      args.rows = count;
    });
    flush(0);
  });
}

// The weight's elements are read while those of `written` change.
void check_weight_apart(const char* op, const RmsArguments& a, const char* of,
                        const Extent& written) {
  if (a.weight) check_apart(op, "weight", extent(a.weight, meta(a.weight)), of, written);
}

Meta check_residual(const char* op, const Tensor& residual, const Meta& xm) {
  const Meta m = check_cpu(op, "residual", "x", residual);
  VLLM_OPS_CHECK(same_shape(m, xm), op, "residual must have shape ", shape_string(xm), ", got ",
                 shape_string(m));
  VLLM_OPS_CHECK(m.dtype == xm.dtype, op, "residual must be ", dtype_name(xm.dtype), ", got ",
                 dtype_name(m.dtype));
  return m;
}

struct Operand {
  const Tensor& tensor;
  const Meta& meta;
};

void run_fused(const char* op, Operand x, Operand residual, Operand out, Operand sum,
               const RmsArguments& a) {
  const Meta& xm = x.meta;
  const int dtype = dtype_index(xm.dtype);
  const Weight weight(op, a.weight, xm);
  const RmsNormArgs common = prepare(op, xm, a, weight);
  const RmsNormFn fn = kernels().rms_norm->fused_add_rms_norm[weight.kind()][dtype];
  const RowGrid<4> grid(xm.sizes, xm.dim - 1,
                        {xm.strides, residual.meta.strides, out.meta.strides, sum.meta.strides});
  if (grid.rows() <= 0 || common.cols == 0) return;
  const int64_t row_bytes = common.cols * kElementSize[dtype];
  void* const result = mutable_data(out.tensor);
  void* const total = mutable_data(sum.tensor);
  const void* const in = data(x.tensor);
  const void* const res = data(residual.tensor);
  const int64_t* strides = grid.inner_strides();
  parallel_rows(grid.rows(), common.cols, [&](int64_t begin, int64_t end) {
    const int64_t step = downwards(in == result, begin, end, grid.rows(), row_bytes) ? -1 : 1;
    grid.for_runs(begin, end, [&](int64_t, const int64_t* offset, int64_t count) {
      const int64_t last = step < 0 ? count - 1 : 0;
      RmsNormArgs args = common;
      args.x = at(in, offset[0] + last * strides[0], dtype);
      args.x_stride = step * strides[0];
      args.residual = at(res, offset[1] + last * strides[1], dtype);
      args.residual_stride = step * strides[1];
      args.out = at(result, offset[2] + last * strides[2], dtype);
      args.out_stride = step * strides[2];
      args.sum = at(total, offset[3] + last * strides[3], dtype);
      args.sum_stride = step * strides[3];
      args.rows = count;
      fn(args);
    });
  });
}

void boxed_rms_norm(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "rms_norm";
  check_arity(op, num_args, 6);
  Tensor x(stack[0]);
  const RmsArguments a(stack + 1);
  Meta m = check_floating(op, "x", x);
  require_unit_stride(x, m);
  Tensor out = empty(m.sizes, m.dim, m.dtype);
  run_rms_norm(op, x, m, out, meta(out), a);
  stack[0] = out.release();
}

void boxed_rms_norm_(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "rms_norm_";
  check_arity(op, num_args, 6);
  const Tensor x(stack[0]);
  const RmsArguments a(stack + 1);
  const Meta m = check_floating(op, "x", x);
  const Extent written = extent(x, m);
  check_writable(op, "x", written);
  check_weight_apart(op, a, "x", written);
  if (m.unit_last_stride()) {
    run_rms_norm(op, x, m, x, m, a);
    return;
  }
  const Tensor copy = contiguous(x);
  const Meta cm = meta(copy);
  run_rms_norm(op, copy, cm, copy, cm, a);
  copy_(x, copy);
}

void boxed_fused(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "fused_add_rms_norm";
  check_arity(op, num_args, 7);
  Tensor x(stack[0]), residual(stack[1]);
  const RmsArguments a(stack + 2);
  Meta m = check_floating(op, "x", x);
  Meta rm = check_residual(op, residual, m);
  require_unit_stride(x, m);
  require_unit_stride(residual, rm);
  Tensor out = empty(m.sizes, m.dim, m.dtype);
  Tensor sum = empty(m.sizes, m.dim, m.dtype);
  run_fused(op, {x, m}, {residual, rm}, {out, meta(out)}, {sum, meta(sum)}, a);
  stack[0] = out.release();
  stack[1] = sum.release();
}

void boxed_fused_(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "fused_add_rms_norm_";
  check_arity(op, num_args, 7);
  const Tensor x(stack[0]), residual(stack[1]);
  const RmsArguments a(stack + 2);
  const Meta m = check_floating(op, "x", x);
  const Meta rm = check_residual(op, residual, m);
  const Extent xe = extent(x, m), re = extent(residual, rm);
  check_writable(op, "x", xe);
  check_writable(op, "residual", re);
  check_weight_apart(op, a, "x", xe);
  check_weight_apart(op, a, "residual", re);
  if (m.unit_last_stride() && rm.unit_last_stride() && !overlap(xe, re)) {
    run_fused(op, {x, m}, {residual, rm}, {x, m}, {residual, rm}, a);
    return;
  }
  // Odd strides, or x and residual in one memory: compute aside, then copy x first and residual
  // second, which is the order in which the reference writes them.
  const Tensor x_copy = contiguous(x), residual_copy = contiguous(residual);
  const Meta xm = meta(x_copy), cm = meta(residual_copy);
  run_fused(op, {x_copy, xm}, {residual_copy, cm}, {x_copy, xm}, {residual_copy, cm}, a);
  copy_(x, x_copy);
  copy_(residual, residual_copy);
}

}  // namespace

void register_rms_norm(Library& m) {
  m.impl("rms_norm", &boxed_rms_norm);
  m.impl("rms_norm_", &boxed_rms_norm_);
  m.impl("fused_add_rms_norm", &boxed_fused);
  m.impl("fused_add_rms_norm_", &boxed_fused_);
}

}  // namespace vllm_ops
