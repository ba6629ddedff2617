// SPDX-License-Identifier: Apache-2.0
#include "dispatch/activation.h"
#include "launch.h"
#include "tuning.h"

namespace vllm_ops::gpu {

void gated(const GatedArgs& args, void* stream) {
  launch_gated<Tuning>(args, static_cast<Stream>(stream));
}

void unary(const UnaryArgs& args, void* stream) {
  launch_unary<Tuning>(args, static_cast<Stream>(stream));
}

}  // namespace vllm_ops::gpu
