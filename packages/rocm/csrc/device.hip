// SPDX-License-Identifier: Apache-2.0
#include <hip/hip_runtime.h>

#include "launch.h"

namespace vllm_ops::gpu {

const char* launch_error() {
  const hipError_t error = hipGetLastError();
  return error == hipSuccess ? nullptr : hipGetErrorString(error);
}

const char* architecture() {
  static thread_local hipDeviceProp_t properties;
  int device = 0;
  if (hipGetDevice(&device) != hipSuccess) return "an unknown GPU";
  if (hipGetDeviceProperties(&properties, device) != hipSuccess) return "an unknown GPU";
  return properties.gcnArchName;
}

}  // namespace vllm_ops::gpu
