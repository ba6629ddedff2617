// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <stdio.h>

#include "launch.h"

namespace vllm_ops::gpu {

const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

const char* architecture() {
  static thread_local char name[32];
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  snprintf(name, sizeof name, "sm_%d%d", major, minor);
  return name;
}

}  // namespace vllm_ops::gpu
