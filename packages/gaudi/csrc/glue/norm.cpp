// SPDX-License-Identifier: Apache-2.0
// fused_add_rms_norm, qk_norm.
#include "../params.h"
#include "node.h"

namespace vllm_ops_gaudi {
namespace {

void add_norm_scalars(const api::HabanaKernelParams& node, api::HabanaKernelInstantiation& out,
                      uint64_t size) {
  const auto& params = *static_cast<const NormParams*>(node.nodeParams.nodeParams);
  add_scalar(out, 1.0f / static_cast<float>(size));
  add_scalar(out, params.eps);
  add_scalar(out, params.weight_offset);
  add_scalar(out, params.round_before_weight);
}

void needs_heads_of_token(api::TensorAccessPattern& pattern) {
  needs_all(pattern, 0);
  needs_all(pattern, 1);
  needs_part(pattern, 2, 0);
}

}  // namespace

// x, residual [rows, columns], weight [columns] to out, sum [rows, columns].
GlueCodeReturn describe_fused_add_rms_norm(const api::HabanaKernelParams& node,
                                           api::HabanaKernelInstantiation& out) {
  if (GlueCodeReturn bad = check_counts(node, 3, 2, sizeof(NormParams))) return bad;
  if (GlueCodeReturn bad = check_dtypes(node)) return bad;
  const api::TensorGeometry& x = node.inputTensors[0].geometry;
  const uint64_t columns = x.maxSizes[0];
  const uint64_t rows = x.maxSizes[1];
  if (x.dims != 2 || columns == 0 || columns > max_columns(x.dataType) || rows == 0 ||
      !has_sizes(node.inputTensors[1], columns, rows) ||
      !has_sizes(node.inputTensors[2], columns)) {
    return api::GLUE_INCOMPATIBLE_INPUT_SIZE;
  }
  if (!has_sizes(node.outputTensors[0], columns, rows) ||
      !has_sizes(node.outputTensors[1], columns, rows)) {
    return api::GLUE_INCOMPATIBLE_OUTPUT_SIZE;
  }

  set_index_space(out, rows);
  for (uint32_t i = 0; i < 2; ++i) {
    needs_all(out.inputTensorAccessPattern[i], 0);
    needs_part(out.inputTensorAccessPattern[i], 1, 0);
    needs_all(out.outputTensorAccessPattern[i], 0);
    needs_part(out.outputTensorAccessPattern[i], 1, 0);
  }
  needs_all(out.inputTensorAccessPattern[2], 0);
  add_norm_scalars(node, out, columns);
  return api::GLUE_SUCCESS;
}

// query, key [tokens, heads, head_size], their weights [head_size], to tensors of the same sizes.
GlueCodeReturn describe_qk_norm(const api::HabanaKernelParams& node,
                                api::HabanaKernelInstantiation& out) {
  if (GlueCodeReturn bad = check_counts(node, 4, 2, sizeof(NormParams))) return bad;
  if (GlueCodeReturn bad = check_dtypes(node)) return bad;
  const api::TensorGeometry& query = node.inputTensors[0].geometry;
  const uint64_t head_size = query.maxSizes[0];
  const uint64_t tokens = query.maxSizes[2];
  for (uint32_t i = 0; i < 2; ++i) {
    const api::TensorGeometry& x = node.inputTensors[i].geometry;
    const uint64_t heads = x.maxSizes[1];
    if (x.dims != 3 || head_size == 0 || heads == 0 || tokens == 0 ||
        !has_sizes(node.inputTensors[i], head_size, heads, tokens) ||
        !has_sizes(node.inputTensors[2 + i], head_size)) {
      return api::GLUE_INCOMPATIBLE_INPUT_SIZE;
    }
    if (!has_sizes(node.outputTensors[i], head_size, heads, tokens)) {
      return api::GLUE_INCOMPATIBLE_OUTPUT_SIZE;
    }
    needs_heads_of_token(out.inputTensorAccessPattern[i]);
    needs_heads_of_token(out.outputTensorAccessPattern[i]);
    needs_all(out.inputTensorAccessPattern[2 + i], 0);
  }
  set_index_space(out, tokens);
  add_norm_scalars(node, out, head_size);
  return api::GLUE_SUCCESS;
}

}  // namespace vllm_ops_gaudi
