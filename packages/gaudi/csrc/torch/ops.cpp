// SPDX-License-Identifier: Apache-2.0
// The TPC kernels as torch operators of the library vllm_ops_gaudi, one for each kernel and dtype:
// a kernel's GUID belongs to one dtype, and a descriptor to one GUID. The Python part of the
// package decides when they are called, and hands over contiguous tensors of the right rank and
// dtype.
#include <ATen/core/Tensor.h>
#include <hpu_custom_op_pt2.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "../params.h"

// The tests register the same code for CPU tensors.
#ifndef VLLM_OPS_GAUDI_KEY
#define VLLM_OPS_GAUDI_KEY HPU
#endif

namespace vllm_ops_gaudi {
namespace {

using habana::PartialOutputMetaData;
using habana::PartialOutputMetaDataVector;
using Pair = std::tuple<at::Tensor, at::Tensor>;

PartialOutputMetaData like(const at::Tensor& x) { return {x.scalar_type(), x.sizes().vec()}; }

PartialOutputMetaDataVector half_of_first(const at::Stack& inputs) {
  PartialOutputMetaData out = like(inputs.at(0).toTensor());
  out.shape.back() /= 2;
  return {out};
}

PartialOutputMetaDataVector first_two(const at::Stack& inputs) {
  return {like(inputs.at(0).toTensor()), like(inputs.at(1).toTensor())};
}

std::shared_ptr<void> no_params(const at::Stack&, size_t& size) {
  size = 0;
  return nullptr;
}

std::shared_ptr<void> gelu_params(const at::Stack& inputs, size_t& size) {
  size = sizeof(GeluParams);
  return std::make_shared<GeluParams>(GeluParams{inputs.at(1).toBool() ? 1 : 0});
}

// The last three inputs.
std::shared_ptr<void> norm_params(const at::Stack& inputs, size_t& size) {
  size = sizeof(NormParams);
  const size_t n = inputs.size();
  return std::make_shared<NormParams>(NormParams{static_cast<float>(inputs.at(n - 3).toDouble()),
                                                 static_cast<float>(inputs.at(n - 2).toDouble()),
                                                 inputs.at(n - 1).toBool() ? 1 : 0});
}

std::vector<at::Tensor> run(const char* schema, const std::vector<c10::IValue>& inputs) {
  return habana::custom_op::UserCustomOpDescriptor::getUserCustomOpDescriptor(schema).execute(
      inputs);
}

at::Tensor empty_half(const at::Tensor& x) {
  auto shape = x.sym_sizes().vec();
  shape.back() = shape.back() / 2;
  return x.new_empty_symint(shape);
}

Pair empty_pair(const at::Tensor& a, const at::Tensor& b) {
  return {a.new_empty_symint(a.sym_sizes()), b.new_empty_symint(b.sym_sizes())};
}

#define VLLM_OPS_NAME(kernel, dtype) "vllm_ops_gaudi::" #kernel "_" #dtype

#define VLLM_OPS_DEFINE(dtype)                                                                     \
  at::Tensor silu_and_mul_##dtype(const at::Tensor& x) {                                           \
    return run(VLLM_OPS_NAME(silu_and_mul, dtype), {x}).at(0);                                     \
  }                                                                                                \
  at::Tensor gelu_and_mul_##dtype(const at::Tensor& x, bool tanh_form) {                           \
    return run(VLLM_OPS_NAME(gelu_and_mul, dtype), {x, tanh_form}).at(0);                          \
  }                                                                                                \
  Pair fused_add_rms_norm_##dtype(const at::Tensor& x, const at::Tensor& residual,                 \
                                  const at::Tensor& weight, double eps, double weight_offset,      \
                                  bool round_before_weight) {                                      \
    const auto out = run(VLLM_OPS_NAME(fused_add_rms_norm, dtype),                                 \
                         {x, residual, weight, eps, weight_offset, round_before_weight});          \
    return {out.at(0), out.at(1)};                                                                 \
  }                                                                                                \
  Pair qk_norm_##dtype(const at::Tensor& query, const at::Tensor& key, const at::Tensor& q_weight, \
                       const at::Tensor& k_weight, double eps, double weight_offset,               \
                       bool round_before_weight) {                                                 \
    const auto out = run(VLLM_OPS_NAME(qk_norm, dtype), {query, key, q_weight, k_weight, eps,      \
                                                         weight_offset, round_before_weight});     \
    return {out.at(0), out.at(1)};                                                                 \
  }

VLLM_OPS_DEFINE(bf16)
VLLM_OPS_DEFINE(f32)

at::Tensor silu_and_mul_meta(const at::Tensor& x) { return empty_half(x); }
at::Tensor gelu_and_mul_meta(const at::Tensor& x, bool) { return empty_half(x); }
Pair fused_add_rms_norm_meta(const at::Tensor& x, const at::Tensor& residual, const at::Tensor&,
                             double, double, bool) {
  return empty_pair(x, residual);
}
Pair qk_norm_meta(const at::Tensor& query, const at::Tensor& key, const at::Tensor&,
                  const at::Tensor&, double, double, bool) {
  return empty_pair(query, key);
}

void register_user_custom_ops() {
  using habana::custom_op::registerUserCustomOp;
#define VLLM_OPS_REGISTER(kernel, meta, params)                                                 \
  registerUserCustomOp(VLLM_OPS_NAME(kernel, bf16), "vllm_ops_" #kernel "_bf16", meta, params); \
  registerUserCustomOp(VLLM_OPS_NAME(kernel, f32), "vllm_ops_" #kernel "_f32", meta, params);
  VLLM_OPS_REGISTER(silu_and_mul, half_of_first, no_params)
  VLLM_OPS_REGISTER(gelu_and_mul, half_of_first, gelu_params)
  VLLM_OPS_REGISTER(fused_add_rms_norm, first_two, norm_params)
  VLLM_OPS_REGISTER(qk_norm, first_two, norm_params)
}

}  // namespace

TORCH_LIBRARY(vllm_ops_gaudi, m) {
  for (const std::string dtype : {"bf16", "f32"}) {
    const auto define = [&](const char* kernel, const char* arguments) {
      m.def((std::string(kernel) + "_" + dtype + arguments).c_str());
    };
    define("silu_and_mul", "(Tensor x) -> Tensor");
    define("gelu_and_mul", "(Tensor x, bool tanh_form) -> Tensor");
    define("fused_add_rms_norm",
           "(Tensor x, Tensor residual, Tensor weight, float eps, float weight_offset, "
           "bool round_before_weight) -> (Tensor, Tensor)");
    define("qk_norm",
           "(Tensor query, Tensor key, Tensor q_weight, Tensor k_weight, float eps, "
           "float weight_offset, bool round_before_weight) -> (Tensor, Tensor)");
  }
  register_user_custom_ops();
}

#define VLLM_OPS_IMPL(m, kernel)                    \
  m.impl(#kernel "_bf16", TORCH_FN(kernel##_bf16)); \
  m.impl(#kernel "_f32", TORCH_FN(kernel##_f32));

TORCH_LIBRARY_IMPL(vllm_ops_gaudi, VLLM_OPS_GAUDI_KEY,
                   m){VLLM_OPS_IMPL(m, silu_and_mul) VLLM_OPS_IMPL(m, gelu_and_mul)
                          VLLM_OPS_IMPL(m, fused_add_rms_norm) VLLM_OPS_IMPL(m, qk_norm)}
#define VLLM_OPS_META(m, kernel)                    \
  m.impl(#kernel "_bf16", TORCH_FN(kernel##_meta)); \
  m.impl(#kernel "_f32", TORCH_FN(kernel##_meta));

TORCH_LIBRARY_IMPL(vllm_ops_gaudi, Meta, m) {
  VLLM_OPS_META(m, silu_and_mul)
  VLLM_OPS_META(m, gelu_and_mul)
  VLLM_OPS_META(m, fused_add_rms_norm)
  VLLM_OPS_META(m, qk_norm)
}

}  // namespace vllm_ops_gaudi
