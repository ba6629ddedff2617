// SPDX-License-Identifier: Apache-2.0
#include "register.h"

namespace vllm_ops::binding {
namespace {

using OptionalTensor = std::optional<Tensor>;

void check_norm(const char* op, const Tensor& x, const OptionalTensor& weight, double eps) {
  activation_input(op, x);
  vector(op, "weight", weight, x.size(x.dim() - 1), "x", x);
  not_negative(op, "eps", eps);
  countable(op, "x", x.size(x.dim() - 1));
}

void check_rms(const char* op, const Tensor& x, const OptionalTensor& weight, double eps,
               std::optional<int64_t> variance_size) {
  check_norm(op, x, weight, eps);
  const int64_t cols = x.size(x.dim() - 1);
  if (variance_size.has_value() && (*variance_size < 1 || *variance_size > cols)) {
    fail(op, ": variance_size must be between 1 and ", cols, ", got ", *variance_size);
  }
}

void check_residual(const char* op, const Tensor& x, const Tensor& residual) {
  same_shape(op, "residual", residual, x);
  same_dtype(op, "residual", residual, x);
  same_device(op, "residual", residual, "x", x);
}

// Everything but the tensors that are normed and written.
gpu::RmsNormArgs rms_args(const Tensor& x, const Parameter& weight, double eps,
                          std::optional<int64_t> variance_size, double weight_offset,
                          bool round_before_weight) {
  gpu::RmsNormArgs args{};
  const int64_t cols = x.size(x.dim() - 1);
  args.dtype = dtype_of(x);
  args.weight = weight.param();
  args.rows = x.numel() / cols;
  args.cols = int(cols);
  args.variance_size = int(variance_size.value_or(cols));
  args.eps = float(eps);
  args.weight_offset = float(weight_offset);
  args.round_before_weight = round_before_weight;
  return args;
}

void launch(const Call& call, gpu::RmsNormArgs& args, int64_t size) {
  args.vectors = aligned(args.cols, size) && aligned(args.x, args.x_rows, size) &&
                 aligned(args.out, args.out_rows, size) && aligned(args.weight, args.dtype) &&
                 (args.residual == nullptr || (aligned(args.residual, args.residual_rows, size) &&
                                               aligned(args.sum, args.sum_rows, size)));
  gpu::rms_norm(args, call.stream());
  call.finish();
}

Tensor rms_norm(const Tensor x, const OptionalTensor weight, double eps,
                std::optional<int64_t> variance_size, double weight_offset,
                bool round_before_weight) {
  check_rms("rms_norm", x, weight, eps, variance_size);
  Tensor out = new_like(x);
  if (x.numel() == 0) return out;
  const Call call("rms_norm", x);
  const Parameter scale(call, weight);
  auto args = rms_args(x, scale, eps, variance_size, weight_offset, round_before_weight);
  const Walked in = walk(x);
  args.x = call.read(in.tensor);
  args.x_rows = in.rows;
  args.out = call.write(out);
  args.out_rows = one_stride(args.cols);
  launch(call, args, item_size(x));
  return out;
}

void rms_norm_(const Tensor x, const OptionalTensor weight, double eps,
               std::optional<int64_t> variance_size, double weight_offset,
               bool round_before_weight) {
  check_rms("rms_norm_", x, weight, eps, variance_size);
  writable("rms_norm_", "x", x);
  apart("rms_norm_", "weight", weight, "x", x);
  if (x.numel() == 0) return;
  const Call call("rms_norm_", x);
  const Parameter scale(call, weight);
  auto args = rms_args(x, scale, eps, variance_size, weight_offset, round_before_weight);
  Target target(x, x.dim() - 1);
  args.x = args.out = call.write(target.tensor());
  args.x_rows = args.out_rows = target.rows();
  launch(call, args, item_size(x));
  target.put_back();
}

std::tuple<Tensor, Tensor> fused_add_rms_norm(const Tensor x, const Tensor residual,
                                              const OptionalTensor weight, double eps,
                                              std::optional<int64_t> variance_size,
                                              double weight_offset, bool round_before_weight) {
  check_rms("fused_add_rms_norm", x, weight, eps, variance_size);
  check_residual("fused_add_rms_norm", x, residual);
  Tensor out = new_like(x), sum = new_like(x);
  if (x.numel() == 0) return {out, sum};
  const Call call("fused_add_rms_norm", x);
  const Parameter scale(call, weight);
  auto args = rms_args(x, scale, eps, variance_size, weight_offset, round_before_weight);
  const Walked in = walk(x), added = walk(residual);
  args.x = call.read(in.tensor);
  args.x_rows = in.rows;
  args.residual = call.read(added.tensor);
  args.residual_rows = added.rows;
  args.out = call.write(out);
  args.sum = call.write(sum);
  args.out_rows = args.sum_rows = one_stride(args.cols);
  launch(call, args, item_size(x));
  return {out, sum};
}

void fused_add_rms_norm_(const Tensor x, const Tensor residual, const OptionalTensor weight,
                         double eps, std::optional<int64_t> variance_size, double weight_offset,
                         bool round_before_weight) {
  const char* op = "fused_add_rms_norm_";
  check_rms(op, x, weight, eps, variance_size);
  check_residual(op, x, residual);
  writable(op, "x", x);
  writable(op, "residual", residual);
  apart(op, "weight", weight, "x", x);
  apart(op, "weight", weight, "residual", residual);
  if (x.numel() == 0) return;
  const Call call(op, x);
  const Parameter scale(call, weight);
  auto args = rms_args(x, scale, eps, variance_size, weight_offset, round_before_weight);
  // One memory for both: the result is computed first, then written, x before residual.
  const bool aside = overlap(extent(x), extent(residual));
  Target target(x, x.dim() - 1, aside);
  Target total(residual, x.dim() - 1, aside);
  args.x = args.out = call.write(target.tensor());
  args.x_rows = args.out_rows = target.rows();
  args.residual = args.sum = call.write(total.tensor());
  args.residual_rows = args.sum_rows = total.rows();
  launch(call, args, item_size(x));
  target.put_back();
  total.put_back();
}

Tensor layer_norm(const Tensor x, const OptionalTensor weight, const OptionalTensor bias,
                  double eps) {
  check_norm("layer_norm", x, weight, eps);
  vector("layer_norm", "bias", bias, x.size(x.dim() - 1), "x", x);
  Tensor out = new_like(x);
  if (x.numel() == 0) return out;
  const Call call("layer_norm", x);
  const Parameter scale(call, weight), shift(call, bias);
  const Walked in = walk(x);
  const int64_t size = item_size(x);
  gpu::LayerNormArgs args{};
  args.dtype = dtype_of(x);
  args.x = call.read(in.tensor);
  args.x_rows = in.rows;
  args.out = call.write(out);
  args.weight = scale.param();
  args.bias = shift.param();
  args.cols = int(x.size(x.dim() - 1));
  args.rows = x.numel() / args.cols;
  args.eps = float(eps);
  args.vectors = aligned(args.cols, size) && aligned(args.x, in.rows, size) && aligned(args.out) &&
                 aligned(args.weight, args.dtype) && aligned(args.bias, args.dtype);
  gpu::layer_norm(args, call.stream());
  call.finish();
  return out;
}

Tensor rms_norm_gated(const Tensor x, const OptionalTensor gate, const OptionalTensor weight,
                      double eps, std::optional<int64_t> group_size, bool norm_before_gate) {
  const char* op = "rms_norm_gated";
  check_norm(op, x, weight, eps);
  if (gate.has_value()) {
    floating(op, "gate", *gate);
    same_shape(op, "gate", *gate, x);
    same_device(op, "gate", *gate, "x", x);
  }
  const int64_t last = x.size(x.dim() - 1), cols = group_size.value_or(last);
  if (group_size.has_value() && (cols < 1 || last % cols != 0)) {
    fail(op, ": group_size must divide the last dimension, ", last, ", got ", cols);
  }
  Tensor out = new_like(x);
  if (x.numel() == 0) return out;
  const Call call(op, x);
  const Parameter scale(call, weight);
  const Walked in = walk(x), gates = gate.has_value() ? walk(*gate) : Walked{x, {}};
  const int64_t size = item_size(x);
  gpu::GatedNormArgs args{};
  args.dtype = args.gate_dtype = dtype_of(x);
  args.x = call.read(in.tensor);
  args.x_rows = in.rows;
  args.gate_rows = one_stride(0);
  bool gate_vectors = true;
  if (gate.has_value()) {
    args.gate = call.read(gates.tensor);
    args.gate_dtype = dtype_of(*gate);
    args.gate_rows = gates.rows;
    gate_vectors = args.gate_dtype == args.dtype && aligned(args.gate, gates.rows, size);
  }
  args.out = call.write(out);
  args.weight = scale.param();
  args.rows = x.numel() / last;
  args.groups = int(last / cols);
  args.cols = int(cols);
  args.eps = float(eps);
  args.norm_before_gate = norm_before_gate;
  args.vectors = aligned(cols, size) && aligned(args.x, in.rows, size) && aligned(args.out) &&
                 aligned(args.weight, args.dtype) && gate_vectors;
  gpu::rms_norm_gated(args, call.stream());
  call.finish();
  return out;
}

}  // namespace

void register_norms(torch::stable::detail::StableLibrary& m) {
  VLLM_OPS_IMPL(m, rms_norm, 0);
  VLLM_OPS_IMPL(m, rms_norm_, 0);
  VLLM_OPS_IMPL(m, fused_add_rms_norm, 0);
  VLLM_OPS_IMPL(m, fused_add_rms_norm_, 0);
  VLLM_OPS_IMPL(m, layer_norm, 0);
  VLLM_OPS_IMPL(m, rms_norm_gated, 0);
}

}  // namespace vllm_ops::binding
