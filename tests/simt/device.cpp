// SPDX-License-Identifier: Apache-2.0
#include "launch.h"

namespace vllm_ops::gpu {

const char* launch_error() { return nullptr; }
const char* architecture() { return "the emulator"; }

}  // namespace vllm_ops::gpu
