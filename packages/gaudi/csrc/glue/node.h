// SPDX-License-Identifier: Apache-2.0
// Checks and access patterns that every kernel's description is made of.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"

namespace vllm_ops_gaudi {

using api::GlueCodeReturn;

inline GlueCodeReturn check_counts(const api::HabanaKernelParams& node, uint32_t inputs,
                                   uint32_t outputs, uint32_t params_size) {
  if (node.inputTensorNr != inputs) return api::GLUE_INCOMPATIBLE_INPUT_COUNT;
  if (node.outputTensorNr != outputs) return api::GLUE_INCOMPATIBLE_OUTPUT_COUNT;
  if (params_size != 0 &&
      (node.nodeParams.nodeParams == nullptr || node.nodeParams.nodeParamsSize != params_size)) {
    return api::GLUE_FAILED;
  }
  return api::GLUE_SUCCESS;
}

// "vllm_ops_<kernel>_bf16" or "..._f32": the dtype of every tensor of the node.
inline api::TensorDataType dtype_of(const api::GuidInfo& guid) {
  const char* suffix = std::strrchr(guid.name, '_');
  return suffix != nullptr && std::strcmp(suffix, "_bf16") == 0 ? api::DATA_BF16 : api::DATA_F32;
}

inline GlueCodeReturn check_dtypes(const api::HabanaKernelParams& node) {
  const api::TensorDataType expected = dtype_of(node.guid);
  for (uint32_t i = 0; i < node.inputTensorNr; ++i) {
    if (node.inputTensors[i].geometry.dataType != expected) return api::GLUE_INCOMPATIBLE_DATA_TYPE;
  }
  for (uint32_t i = 0; i < node.outputTensorNr; ++i) {
    if (node.outputTensors[i].geometry.dataType != expected) {
      return api::GLUE_INCOMPATIBLE_DATA_TYPE;
    }
  }
  return api::GLUE_SUCCESS;
}

// Whether a tensor has these sizes, the fastest dimension first.
template <class... Sizes>
bool has_sizes(const api::Tensor& tensor, Sizes... sizes) {
  const uint64_t wanted[] = {static_cast<uint64_t>(sizes)...};
  constexpr uint32_t rank = sizeof...(sizes);
  return tensor.geometry.dims == rank &&
         std::memcmp(tensor.geometry.maxSizes, wanted, sizeof(wanted)) == 0;
}

template <class... Sizes>
void set_index_space(api::HabanaKernelInstantiation& out, Sizes... sizes) {
  const uint64_t geometry[] = {static_cast<uint64_t>(sizes)...};
  out.indexSpaceRank = sizeof...(sizes);
  for (uint32_t i = 0; i < api::MAX_INDEX_SPACE_DIM_SIZE; ++i) {
    out.indexSpaceGeometry[i] = i < out.indexSpaceRank ? geometry[i] : 1;
  }
}

// A member of the index space may touch any part of this dimension.
inline void needs_all(api::TensorAccessPattern& pattern, uint32_t dim) {
  pattern.mapping[dim] = {};
  pattern.mapping[dim].allRequired = true;
}

// Member i of index space dimension `index` touches the elements [step i, step i + step - 1].
inline void needs_part(api::TensorAccessPattern& pattern, uint32_t dim, uint32_t index,
                       uint64_t step = 1) {
  pattern.mapping[dim] = {};
  pattern.mapping[dim].indexSpaceDim = index;
  pattern.mapping[dim].a = static_cast<float>(step);
  pattern.mapping[dim].start_b = 0;
  pattern.mapping[dim].end_b = static_cast<float>(step - 1);
}

inline void add_scalar(api::HabanaKernelInstantiation& out, float value) {
  std::memcpy(&out.kernel.scalarParams[out.kernel.paramsNr++], &value, sizeof(value));
}

inline void add_scalar(api::HabanaKernelInstantiation& out, int32_t value) {
  std::memcpy(&out.kernel.scalarParams[out.kernel.paramsNr++], &value, sizeof(value));
}

}  // namespace vllm_ops_gaudi
