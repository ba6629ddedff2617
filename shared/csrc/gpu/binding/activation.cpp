// SPDX-License-Identifier: Apache-2.0
#include "register.h"

namespace vllm_ops::binding {
namespace {

using gpu::Gated;
using gpu::Unary;

Tensor gated(const char* op, Gated kind, const Tensor& x, double a = 0.0, double b = 0.0) {
  activation_input(op, x);
  const int64_t last = x.size(x.dim() - 1);
  if (last % 2 != 0) fail(op, ": x must have an even last dimension, got ", last);
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = last / 2;
  Tensor out = torch::stable::new_empty(x, shape);
  if (out.numel() == 0) return out;
  const Call call(op, x);
  const Walked in = walk(x);
  const int64_t size = item_size(x);
  gpu::GatedArgs args{};
  args.op = kind;
  args.dtype = dtype_of(x);
  args.x = call.read(in.tensor);
  args.x_rows = in.rows;
  args.out = call.write(out);
  args.rows = out.numel() / shape.back();
  args.cols = shape.back();
  args.a = float(a);
  args.b = float(b);
  args.vectors = aligned(args.cols, size) && aligned(args.x, in.rows, size) && aligned(args.out);
  gpu::gated(args, call.stream());
  call.finish();
  return out;
}

Tensor unary(const char* op, Unary kind, const Tensor& x, double a = 0.0, double b = 0.0,
             const std::optional<Tensor>& alpha_p = std::nullopt,
             const std::optional<Tensor>& alpha_n = std::nullopt) {
  floating(op, "x", x);
  Tensor out = new_like(x);
  if (out.numel() == 0) return out;
  const Call call(op, x);
  const Parameter p(call, alpha_p), n(call, alpha_n);
  // The row structure means nothing here: what lies in one piece is one row.
  Walked in = walk(x, x.dim() - 1);
  gpu::UnaryArgs args{};
  args.cols = x.dim() == 0 ? 1 : x.size(x.dim() - 1);
  if (in.rows.dims == 1 && in.rows.stride[0] == args.cols) args.cols = x.numel();
  const int64_t size = item_size(x);
  args.op = kind;
  args.dtype = dtype_of(x);
  args.x = call.read(in.tensor);
  args.x_rows = in.rows;
  args.out = call.write(out);
  args.rows = x.numel() / args.cols;
  args.a = float(a);
  args.b = float(b);
  args.alpha_p = p.param();
  args.alpha_n = n.param();
  if (args.rows == 1) args.x_rows = one_stride(0);
  args.vectors =
      aligned(args.cols, size) && aligned(args.x, args.x_rows, size) && aligned(args.out);
  gpu::unary(args, call.stream());
  call.finish();
  return out;
}

Tensor silu_and_mul(const Tensor x) { return gated("silu_and_mul", Gated::kSiluAndMul, x); }
Tensor mul_and_silu(const Tensor x) { return gated("mul_and_silu", Gated::kMulAndSilu, x); }
Tensor gelu_and_mul(const Tensor x, const std::string approximate) {
  if (approximate != "none" && approximate != "tanh") {
    fail("gelu_and_mul: approximate must be \"none\" or \"tanh\", got '", approximate, "'");
  }
  const Gated kind = approximate == "none" ? Gated::kGeluAndMul : Gated::kGeluTanhAndMul;
  return gated("gelu_and_mul", kind, x);
}
Tensor fatrelu_and_mul(const Tensor x, double threshold) {
  return gated("fatrelu_and_mul", Gated::kFatreluAndMul, x, threshold);
}
Tensor silu_and_mul_with_clamp(const Tensor x, double limit) {
  above_zero("silu_and_mul_with_clamp", "limit", limit);
  return gated("silu_and_mul_with_clamp", Gated::kSiluAndMulClamp, x, limit);
}
Tensor swigluoai_and_mul(const Tensor x, double alpha, double limit) {
  above_zero("swigluoai_and_mul", "limit", limit);
  return gated("swigluoai_and_mul", Gated::kSwigluOAIAndMul, x, alpha, limit);
}

Tensor gelu(const Tensor x) { return unary("gelu", Unary::kGelu, x); }
Tensor gelu_tanh(const Tensor x) { return unary("gelu_tanh", Unary::kGeluTanh, x); }
Tensor gelu_new(const Tensor x) { return unary("gelu_new", Unary::kGeluTanh, x); }
Tensor gelu_fast(const Tensor x) { return unary("gelu_fast", Unary::kGeluFast, x); }
Tensor quick_gelu(const Tensor x) { return unary("quick_gelu", Unary::kQuickGelu, x); }
Tensor relu2(const Tensor x) { return unary("relu2", Unary::kRelu2, x); }
Tensor xielu(const Tensor x, const Tensor alpha_p, const Tensor alpha_n, double beta, double eps) {
  floating("xielu", "x", x);
  for (const auto& [name, value] : {std::pair{"alpha_p", &alpha_p}, {"alpha_n", &alpha_n}}) {
    floating("xielu", name, *value);
    if (value->numel() != 1) fail("xielu: ", name, " must have 1 element, got ", value->numel());
    same_device("xielu", name, *value, "x", x);
  }
  return unary("xielu", Unary::kXielu, x, beta, eps, alpha_p, alpha_n);
}

}  // namespace

void register_activations(torch::stable::detail::StableLibrary& m) {
  VLLM_OPS_IMPL(m, silu_and_mul, 0);
  VLLM_OPS_IMPL(m, mul_and_silu, 0);
  VLLM_OPS_IMPL(m, gelu_and_mul, 0);
  VLLM_OPS_IMPL(m, fatrelu_and_mul, 0);
  VLLM_OPS_IMPL(m, silu_and_mul_with_clamp, 0);
  VLLM_OPS_IMPL(m, swigluoai_and_mul, 0);
  VLLM_OPS_IMPL(m, gelu, 0);
  VLLM_OPS_IMPL(m, gelu_tanh, 0);
  VLLM_OPS_IMPL(m, gelu_new, 0);
  VLLM_OPS_IMPL(m, gelu_fast, 0);
  VLLM_OPS_IMPL(m, quick_gelu, 0);
  VLLM_OPS_IMPL(m, relu2, 0);
  VLLM_OPS_IMPL(m, xielu, 0);
}

}  // namespace vllm_ops::binding
