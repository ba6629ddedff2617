// SPDX-License-Identifier: Apache-2.0
// Stand-in for the header of that name in habanatools: only what the glue of vllm_ops uses, written
// from the public description of the interface. Names and roles are the interface's; values, order
// and sizes are not, so nothing built with it can be given to a graph compiler.
#pragma once

#include <cstdint>

namespace tpc_lib_api {

constexpr uint32_t MAX_NODE_NAME = 64;
constexpr uint32_t MAX_TENSOR_DIM = 25;
constexpr uint32_t MAX_INDEX_SPACE_DIM_SIZE = 5;
constexpr uint32_t MAX_SCALAR_PARAMS = 32;

enum DeviceId { DEVICE_ID_GAUDI, DEVICE_ID_GAUDI2, DEVICE_ID_GAUDI3 };

enum GlueCodeReturn {
  GLUE_SUCCESS,
  GLUE_NODE_NOT_FOUND,
  GLUE_INSUFFICIENT_ELF_BUFFER,
  GLUE_INCOMPATIBLE_INPUT_COUNT,
  GLUE_INCOMPATIBLE_INPUT_SIZE,
  GLUE_INCOMPATIBLE_OUTPUT_COUNT,
  GLUE_INCOMPATIBLE_OUTPUT_SIZE,
  GLUE_INCOMPATIBLE_DATA_TYPE,
  GLUE_FAILED
};

enum TensorDataType { DATA_BF16, DATA_F32 };

struct GuidInfo {
  char name[MAX_NODE_NAME];
};

struct UserParams {
  void* nodeParams;
  uint32_t nodeParamsSize;
};

// The fastest dimension first.
struct TensorGeometry {
  uint32_t dims;
  uint64_t maxSizes[MAX_TENSOR_DIM];
  uint64_t minSizes[MAX_TENSOR_DIM];
  TensorDataType dataType;
};

struct Tensor {
  TensorGeometry geometry;
};

// The members [i, j] of dimension indexSpaceDim touch the elements [a i + start_b, a j + end_b].
struct DimIndexSpaceMapping {
  uint32_t indexSpaceDim;
  float a;
  float start_b;
  float end_b;
  bool allRequired;
};

struct TensorAccessPattern {
  uint32_t allRequired;
  DimIndexSpaceMapping mapping[MAX_TENSOR_DIM];
};

struct HabanaKernelParams {
  DeviceId deviceId;
  GuidInfo guid;
  UserParams nodeParams;
  Tensor* inputTensors;
  uint32_t inputTensorNr;
  Tensor* outputTensors;
  uint32_t outputTensorNr;
};

struct DeviceKernel {
  void* kernelElf;
  uint32_t elfSize;
  uint32_t scalarParams[MAX_SCALAR_PARAMS];
  uint32_t paramsNr;
};

struct HabanaKernelInstantiation {
  uint32_t indexSpaceRank;
  uint64_t indexSpaceGeometry[MAX_INDEX_SPACE_DIM_SIZE];
  TensorAccessPattern* inputTensorAccessPattern;
  TensorAccessPattern* outputTensorAccessPattern;
  DeviceKernel kernel;
};

struct ShapeInferenceParams;
struct ShapeInferenceOutput;

}  // namespace tpc_lib_api
