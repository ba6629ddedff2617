// SPDX-License-Identifier: Apache-2.0
// Bindings of layer_norm and rms_norm_gated.
#include "common.h"
#include "register.h"
#include "rows.h"
#include "weights.h"

namespace vllm_ops {
namespace {

void boxed_layer_norm(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "layer_norm";
  check_arity(op, num_args, 4);
  Tensor x(stack[0]);
  const Tensor weight_arg = optional_tensor(stack[1]), bias_arg = optional_tensor(stack[2]);
  const auto eps = to<double>(stack[3]);
  Meta m = check_floating(op, "x", x);
  const Weight weight(op, weight_arg, m, "weight", true), bias(op, bias_arg, m, "bias", true);
  check_eps(op, eps);
  require_unit_stride(x, m);
  Tensor out = empty(m.sizes, m.dim, m.dtype);
  const int dtype = dtype_index(m.dtype);
  const int64_t cols = m.last();
  const LayerNormFn fn = kernels().norm->layer_norm[dtype];
  const RowGrid<1> grid(m.sizes, m.dim - 1, {m.strides});
  if (grid.rows() > 0 && cols > 0) {
    const void* in = data(x);
    void* result = mutable_data(out);
    parallel_rows(grid.rows(), cols, [&](int64_t begin, int64_t end) {
      grid.for_runs(begin, end, [&](int64_t row, const int64_t* offset, int64_t count) {
        fn({at(in, offset[0], dtype), grid.inner_strides()[0], at(result, row * cols, dtype), cols,
            weight.data(), bias.data(), count, cols, eps});
      });
    });
  }
  stack[0] = out.release();
}

void boxed_rms_norm_gated(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "rms_norm_gated";
  check_arity(op, num_args, 6);
  Tensor x(stack[0]), gate = optional_tensor(stack[1]);
  const Tensor weight_arg = optional_tensor(stack[2]);
  const auto eps = to<double>(stack[3]);
  const auto group_size = to<std::optional<int64_t>>(stack[4]);
  const auto norm_before_gate = to<bool>(stack[5]);

  Meta m = check_floating(op, "x", x);
  const Weight weight(op, weight_arg, m, "weight", true);
  check_eps(op, eps);
  const int64_t cols = m.last(), group = group_size.value_or(cols);
  VLLM_OPS_CHECK(!group_size || (group >= 1 && cols % group == 0), op,
                 "group_size must divide the last dimension, ", cols, ", got ", group);
  require_unit_stride(x, m);
  Meta gm = m;  // without a gate, strides that change nothing
  bool wide_gate = false;
  if (gate) {
    gm = check_any_floating(op, "gate", "x", gate);
    VLLM_OPS_CHECK(same_shape(gm, m), op, "gate must have shape ", shape_string(m), ", got ",
                   shape_string(gm));
    wide_gate = gm.dtype != m.dtype;
    if (wide_gate && dtype_index(gm.dtype) != wide_dtype(dtype_index(m.dtype))) {
      gate = wider_copy(gate, gm, wide_dtype(dtype_index(m.dtype)));
      gm = meta(gate);
    }
    require_unit_stride(gate, gm);
  }
  Tensor out = empty(m.sizes, m.dim, m.dtype);
  const int dtype = dtype_index(m.dtype), gate_dtype = dtype_index(gm.dtype);
  const RowGrid<2> grid(m.sizes, m.dim - 1, {m.strides, gm.strides});
  if (grid.rows() > 0 && cols > 0) {
    GatedNormArgs common{};
    common.weight = weight.data();
    common.x_stride = grid.inner_strides()[0];
    common.gate_stride = grid.inner_strides()[1];
    common.out_stride = cols;
    common.cols = cols;
    common.group_size = group;
    common.eps = eps;
    common.norm_before_gate = norm_before_gate;
    const GatedNormFn fn = kernels().norm->rms_norm_gated[wide_gate][dtype];
    const void* in = data(x);
    const void* gates = gate ? data(gate) : nullptr;
    void* result = mutable_data(out);
    parallel_rows(
        grid.rows(), cols,
        [&](int64_t begin, int64_t end) {
          const bool needs_scratch = gates != nullptr && !norm_before_gate;
          const std::unique_ptr<double[]> scratch(needs_scratch ? new double[group] : nullptr);
          grid.for_runs(begin, end, [&](int64_t row, const int64_t* offset, int64_t count) {
            GatedNormArgs args = common;
            args.x = at(in, offset[0], dtype);
            args.gate = gates == nullptr ? nullptr : at(gates, offset[1], gate_dtype);
            args.out = at(result, row * cols, dtype);
            args.rows = count;
            args.scratch = scratch.get();
            fn(args);
          });
        },
        kernels().activation_cost);
  }
  stack[0] = out.release();
}

}  // namespace

void register_norm(Library& m) {
  m.impl("layer_norm", &boxed_layer_norm);
  m.impl("rms_norm_gated", &boxed_rms_norm_gated);
}

}  // namespace vllm_ops
