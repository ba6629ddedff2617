// SPDX-License-Identifier: Apache-2.0
// The functions that the graph compiler looks up in a kernel library.
#include "elf.h"
#include "node.h"

namespace vllm_ops_gaudi {
namespace {

struct Kernel {
  const char* guid;
  Describe describe;
  const unsigned char* elf;
  const unsigned* elf_size;
};

#define VLLM_OPS_KERNEL(name, dtype)                                              \
  {"vllm_ops_" #name "_" #dtype, &describe_##name, vllm_ops_elf_##name##_##dtype, \
   &vllm_ops_elf_size_##name##_##dtype}

const Kernel kKernels[] = {
    VLLM_OPS_KERNEL(silu_and_mul, bf16),
    VLLM_OPS_KERNEL(silu_and_mul, f32),
    VLLM_OPS_KERNEL(gelu_and_mul, bf16),
    VLLM_OPS_KERNEL(gelu_and_mul, f32),
    VLLM_OPS_KERNEL(fused_add_rms_norm, bf16),
    VLLM_OPS_KERNEL(fused_add_rms_norm, f32),
    VLLM_OPS_KERNEL(qk_norm, bf16),
    VLLM_OPS_KERNEL(qk_norm, f32),
};
constexpr uint32_t kCount = sizeof(kKernels) / sizeof(kKernels[0]);

// The generation that the kernels of this library were compiled for.
#ifdef VLLM_OPS_GAUDI3
constexpr api::DeviceId kDevice = api::DEVICE_ID_GAUDI3;
#else
constexpr api::DeviceId kDevice = api::DEVICE_ID_GAUDI2;
#endif

const Kernel* find(const char* guid) {
  for (const Kernel& kernel : kKernels) {
    if (std::strncmp(kernel.guid, guid, api::MAX_NODE_NAME) == 0) return &kernel;
  }
  return nullptr;
}

}  // namespace
}  // namespace vllm_ops_gaudi

extern "C" {

tpc_lib_api::GlueCodeReturn GetKernelGuids(tpc_lib_api::DeviceId device, uint32_t* count,
                                           tpc_lib_api::GuidInfo* guids) {
  using namespace vllm_ops_gaudi;
  const bool supported = device == kDevice;
  if (supported && guids != nullptr) {
    for (uint32_t i = 0; i < kCount; ++i) {
      std::strncpy(guids[i].name, kKernels[i].guid, api::MAX_NODE_NAME - 1);
      guids[i].name[api::MAX_NODE_NAME - 1] = '\0';
    }
  }
  if (count != nullptr) *count = supported ? kCount : 0;
  return api::GLUE_SUCCESS;
}

tpc_lib_api::GlueCodeReturn InstantiateTpcKernel(tpc_lib_api::HabanaKernelParams* node,
                                                 tpc_lib_api::HabanaKernelInstantiation* instance) {
  using namespace vllm_ops_gaudi;
  const Kernel* kernel = node->deviceId == kDevice ? find(node->guid.name) : nullptr;
  if (kernel == nullptr) return api::GLUE_NODE_NOT_FOUND;
  instance->kernel.paramsNr = 0;
  if (GlueCodeReturn bad = kernel->describe(*node, *instance)) return bad;

  const uint32_t available = instance->kernel.elfSize;
  instance->kernel.elfSize = *kernel->elf_size;
  if (instance->kernel.kernelElf == nullptr || available < *kernel->elf_size) {
    return api::GLUE_INSUFFICIENT_ELF_BUFFER;  // the graph compiler asks again with a larger one
  }
  std::memcpy(instance->kernel.kernelElf, kernel->elf, *kernel->elf_size);
  return api::GLUE_SUCCESS;
}

// Shapes are static, and the torch operators state those of the outputs.
tpc_lib_api::GlueCodeReturn GetShapeInference(tpc_lib_api::DeviceId,
                                              tpc_lib_api::ShapeInferenceParams*,
                                              tpc_lib_api::ShapeInferenceOutput*) {
  return tpc_lib_api::GLUE_SUCCESS;
}

}  // extern "C"
