// SPDX-License-Identifier: Apache-2.0
// Bindings of the gated and pointwise activations.
#include <cmath>
#include <cstring>

#include "common.h"
#include "register.h"
#include "rows.h"
#include "weights.h"

namespace vllm_ops {
namespace {

struct Params {
  double p0 = 0, p1 = 0, p2 = 0, p3 = 0;
};

// Rows longer than this are split, so that one long row keeps more than one thread busy.
constexpr int64_t kColumns = 4096;

void run_elementwise(ElementwiseFn fn, const Tensor& x, const Meta& xm, const Tensor& out,
                     int64_t d, int dtype, const Params& p) {
  const RowGrid<1> grid(xm.sizes, xm.dim - 1, {xm.strides});
  if (grid.rows() <= 0 || d == 0) return;
  const void* in = data(x);
  void* result = mutable_data(out);
  const auto rows = [&](int64_t begin, int64_t end, int64_t col_begin, int64_t col_end) {
    grid.for_runs(begin, end, [&](int64_t row, const int64_t* offset, int64_t count) {
      fn({at(in, offset[0], dtype), grid.inner_strides()[0], at(result, row * d, dtype), d, count,
          d, col_begin, col_end, p.p0, p.p1, p.p2, p.p3});
    });
  };
  const int64_t pieces = (d + kColumns - 1) / kColumns;
  const int64_t cost = kernels().activation_cost;
  if (grid.rows() >= 16 || pieces == 1) {
    parallel_rows(
        grid.rows(), d, [&](int64_t begin, int64_t end) { rows(begin, end, 0, d); }, cost);
    return;
  }
  const int64_t width = (d + pieces - 1) / pieces;
  parallel_rows(
      grid.rows() * pieces, width,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t piece = i % pieces, row = i / pieces;
          rows(row, row + 1, piece * width, std::min(d, (piece + 1) * width));
        }
      },
      cost);
}

// x[..., 2d] -> [..., d]
Tensor gated(const char* op, GatedOp which, Tensor x, const Params& p) {
  Meta m = check_floating(op, "x", x);
  VLLM_OPS_CHECK(m.last() % 2 == 0, op, "x must have an even last dimension, got ", m.last());
  require_unit_stride(x, m);
  const int64_t d = m.last() / 2;
  int64_t sizes[64];
  std::copy(m.sizes, m.sizes + m.dim, sizes);
  sizes[m.dim - 1] = d;
  Tensor out = empty(sizes, m.dim, m.dtype);
  const int dtype = dtype_index(m.dtype);
  run_elementwise(kernels().activation->gated[which][dtype], x, m, out, d, dtype, p);
  return out;
}

Tensor unary(const char* op, UnaryOp which, Tensor x, const Params& p) {
  Meta m = check_any_floating(op, "x", "x", x);
  if (m.dim == 0) {  // a scalar is a row of one
    static constexpr int64_t kOne = 1;
    m.dim = 1;
    m.sizes = m.strides = &kOne;
    Tensor out = empty(nullptr, 0, m.dtype);
    const int dtype = dtype_index(m.dtype);
    run_elementwise(kernels().activation->unary[which][dtype], x, m, out, 1, dtype, p);
    return out;
  }
  require_unit_stride(x, m);
  Tensor out = empty(m.sizes, m.dim, m.dtype);
  const int dtype = dtype_index(m.dtype);
  run_elementwise(kernels().activation->unary[which][dtype], x, m, out, m.last(), dtype, p);
  return out;
}

// ---- boxed functions ----

constexpr char kSiluAndMulName[] = "silu_and_mul";
constexpr char kMulAndSiluName[] = "mul_and_silu";
constexpr char kGeluName[] = "gelu";
constexpr char kGeluTanhName[] = "gelu_tanh";
constexpr char kGeluNewName[] = "gelu_new";
constexpr char kGeluFastName[] = "gelu_fast";
constexpr char kQuickGeluName[] = "quick_gelu";
constexpr char kRelu2Name[] = "relu2";

template <const char* kName, GatedOp kOp>
void boxed_gated(StableIValue* stack, uint64_t num_args, uint64_t) {
  check_arity(kName, num_args, 1);
  stack[0] = gated(kName, kOp, Tensor(stack[0]), {}).release();
}

template <const char* kName, UnaryOp kOp>
void boxed_unary(StableIValue* stack, uint64_t num_args, uint64_t) {
  check_arity(kName, num_args, 1);
  stack[0] = unary(kName, kOp, Tensor(stack[0]), {}).release();
}

void boxed_gelu_and_mul(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "gelu_and_mul";
  check_arity(op, num_args, 2);
  Tensor x(stack[0]);
  const auto text = to<StringHandle>(stack[1]);
  const char* approximate = nullptr;
  VLLM_OPS_SHIM(torch_string_c_str(text, &approximate));
  const bool tanh = std::strcmp(approximate, "tanh") == 0;
  const bool known = tanh || std::strcmp(approximate, "none") == 0;
  const std::string got = known ? "" : approximate;
  VLLM_OPS_SHIM(torch_delete_string(text));
  VLLM_OPS_CHECK(known, op, "approximate must be \"none\" or \"tanh\", got '", got, "'");
  stack[0] = gated(op, tanh ? kGeluTanhAndMul : kGeluAndMul, std::move(x), {}).release();
}

void check_limit(const char* op, double limit) {
  VLLM_OPS_CHECK(limit > 0, op, "limit must be above 0, got ", number(limit));
}

void boxed_fatrelu_and_mul(StableIValue* stack, uint64_t num_args, uint64_t) {
  check_arity("fatrelu_and_mul", num_args, 2);
  Tensor x(stack[0]);
  const Params p = {to<double>(stack[1])};
  stack[0] = gated("fatrelu_and_mul", kFatreluAndMul, std::move(x), p).release();
}

void boxed_silu_and_mul_with_clamp(StableIValue* stack, uint64_t num_args, uint64_t) {
  check_arity("silu_and_mul_with_clamp", num_args, 2);
  Tensor x(stack[0]);
  const Params p = {to<double>(stack[1])};
  check_limit("silu_and_mul_with_clamp", p.p0);
  stack[0] = gated("silu_and_mul_with_clamp", kSiluAndMulClamp, std::move(x), p).release();
}

void boxed_swigluoai_and_mul(StableIValue* stack, uint64_t num_args, uint64_t) {
  check_arity("swigluoai_and_mul", num_args, 3);
  Tensor x(stack[0]);
  const Params p = {to<double>(stack[1]), to<double>(stack[2])};
  check_limit("swigluoai_and_mul", p.p1);
  stack[0] = gated("swigluoai_and_mul", kSwigluOAIAndMul, std::move(x), p).release();
}

// softplus of a one-element tensor in float or double.
template <class S>
S softplus_of(const char* op, const char* name, const Tensor& alpha) {
  const Meta m = check_any_floating(op, name, "x", alpha);
  VLLM_OPS_CHECK(numel(m) == 1, op, name, " must have 1 element, got ", numel(m));
  double wide = 0;
  widen(data(alpha), dtype_index(m.dtype), &wide, kF64, 1);
  const S value = static_cast<S>(wide);
  return value > 20 ? value : std::log1p(std::exp(value));  // as F.softplus with its threshold
}

template <class S>
Params xielu_params(const char* op, const Tensor& alpha_p, const Tensor& alpha_n, double beta,
                    double eps) {
  const S p = softplus_of<S>(op, "alpha_p", alpha_p);
  const S n = static_cast<S>(beta) + softplus_of<S>(op, "alpha_n", alpha_n);
  return {p, n, beta, eps};
}

void boxed_xielu(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "xielu";
  check_arity(op, num_args, 5);
  Tensor x(stack[0]);
  const Tensor alpha_p(stack[1]), alpha_n(stack[2]);
  const auto beta = to<double>(stack[3]), eps = to<double>(stack[4]);
  // In bf16 and fp16 the bits should be those of the reference, which has these numbers in fp32.
  const bool half = kElementSize[std::max(0, dtype_index(meta(x).dtype))] == 2;
  const Params p =
      (half ? xielu_params<float> : xielu_params<double>)(op, alpha_p, alpha_n, beta, eps);
  stack[0] = unary(op, kXielu, std::move(x), p).release();
}

}  // namespace

void register_activation(Library& m) {
  m.impl("silu_and_mul", &boxed_gated<kSiluAndMulName, kSiluAndMul>);
  m.impl("mul_and_silu", &boxed_gated<kMulAndSiluName, kMulAndSilu>);
  m.impl("gelu_and_mul", &boxed_gelu_and_mul);
  m.impl("fatrelu_and_mul", &boxed_fatrelu_and_mul);
  m.impl("silu_and_mul_with_clamp", &boxed_silu_and_mul_with_clamp);
  m.impl("swigluoai_and_mul", &boxed_swigluoai_and_mul);
  m.impl("gelu", &boxed_unary<kGeluName, kGelu>);
  m.impl("gelu_tanh", &boxed_unary<kGeluTanhName, kGeluTanh>);
  m.impl("gelu_new", &boxed_unary<kGeluNewName, kGeluTanh>);
  m.impl("gelu_fast", &boxed_unary<kGeluFastName, kGeluFast>);
  m.impl("quick_gelu", &boxed_unary<kQuickGeluName, kQuickGelu>);
  m.impl("relu2", &boxed_unary<kRelu2Name, kRelu2>);
  m.impl("xielu", &boxed_xielu);
}

}  // namespace vllm_ops
