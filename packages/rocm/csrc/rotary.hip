// SPDX-License-Identifier: Apache-2.0
#include "dispatch/rotary.h"
#include "launch.h"
#include "tuning.h"

namespace vllm_ops::gpu {

void rotary(const RotaryArgs& args, void* stream) {
  launch_rotary<Tuning>(args, static_cast<Stream>(stream));
}

void qk_norm_rope(const QkNormRopeArgs& args, void* stream) {
  launch_qk_norm_rope<Tuning>(args, static_cast<Stream>(stream));
}

}  // namespace vllm_ops::gpu
