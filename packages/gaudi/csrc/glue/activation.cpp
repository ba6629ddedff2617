// SPDX-License-Identifier: Apache-2.0
// silu_and_mul, gelu_and_mul: x [rows, 2d] to out [rows, d].
#include "../params.h"
#include "node.h"

namespace vllm_ops_gaudi {
namespace {

GlueCodeReturn describe(const api::HabanaKernelParams& node, api::HabanaKernelInstantiation& out,
                        uint32_t params_size) {
  if (GlueCodeReturn bad = check_counts(node, 1, 1, params_size)) return bad;
  if (GlueCodeReturn bad = check_dtypes(node)) return bad;
  const api::TensorGeometry& x = node.inputTensors[0].geometry;
  if (x.dims != 2 || x.maxSizes[0] == 0 || x.maxSizes[0] % 2 != 0 || x.maxSizes[1] == 0) {
    return api::GLUE_INCOMPATIBLE_INPUT_SIZE;
  }
  const uint64_t d = x.maxSizes[0] / 2;
  const uint64_t rows = x.maxSizes[1];
  if (!has_sizes(node.outputTensors[0], d, rows)) return api::GLUE_INCOMPATIBLE_OUTPUT_SIZE;

  set_index_space(out, (d + kStep - 1) / kStep, rows);
  // Two places of a row, and the distance between them depends on its length.
  needs_all(out.inputTensorAccessPattern[0], 0);
  needs_part(out.inputTensorAccessPattern[0], 1, 1);
  needs_part(out.outputTensorAccessPattern[0], 0, 0, kStep);
  needs_part(out.outputTensorAccessPattern[0], 1, 1);
  return api::GLUE_SUCCESS;
}

}  // namespace

GlueCodeReturn describe_silu_and_mul(const api::HabanaKernelParams& node,
                                     api::HabanaKernelInstantiation& out) {
  return describe(node, out, 0);
}

GlueCodeReturn describe_gelu_and_mul(const api::HabanaKernelParams& node,
                                     api::HabanaKernelInstantiation& out) {
  if (GlueCodeReturn bad = describe(node, out, sizeof(GeluParams))) return bad;
  add_scalar(out, static_cast<const GeluParams*>(node.nodeParams.nodeParams)->tanh_form);
  return api::GLUE_SUCCESS;
}

}  // namespace vllm_ops_gaudi
