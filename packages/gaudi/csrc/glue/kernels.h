// SPDX-License-Identifier: Apache-2.0
// The kernels of this library, one row each.
#pragma once

#include <cstdint>

#include "tpc_kernel_lib_interface.h"

namespace vllm_ops_gaudi {

namespace api = tpc_lib_api;

// Fills what the graph compiler asks about one node, apart from the ELF, which is the same for all.
using Describe = api::GlueCodeReturn (*)(const api::HabanaKernelParams& node,
                                         api::HabanaKernelInstantiation& out);

api::GlueCodeReturn describe_silu_and_mul(const api::HabanaKernelParams& node,
                                          api::HabanaKernelInstantiation& out);
api::GlueCodeReturn describe_gelu_and_mul(const api::HabanaKernelParams& node,
                                          api::HabanaKernelInstantiation& out);
api::GlueCodeReturn describe_fused_add_rms_norm(const api::HabanaKernelParams& node,
                                                api::HabanaKernelInstantiation& out);
api::GlueCodeReturn describe_qk_norm(const api::HabanaKernelParams& node,
                                     api::HabanaKernelInstantiation& out);

// Elements of one load, STEP in ../tpc/vec.h.
constexpr uint64_t kStep = 128;

// The longest row that fused_add_rms_norm keeps in local memory, by ../tpc/vec.h.
constexpr uint64_t max_columns(api::TensorDataType dtype) {
  return dtype == api::DATA_BF16 ? 256 * kStep : 128 * kStep;
}

}  // namespace vllm_ops_gaudi
