// SPDX-License-Identifier: Apache-2.0
// The dispatch of shared/csrc/gpu for SYCL queues.
#include "launch.h"

#include "dispatch/activation.h"
#include "dispatch/norm.h"
#include "dispatch/rotary.h"
#include "tuning.h"

namespace vllm_ops::gpu {

void gated(const GatedArgs& args, void* stream) {
  launch_gated<Tuning>(args, static_cast<Stream>(stream));
}

void unary(const UnaryArgs& args, void* stream) {
  launch_unary<Tuning>(args, static_cast<Stream>(stream));
}

void rms_norm(const RmsNormArgs& args, void* stream) {
  launch_rms_norm<Tuning>(args, static_cast<Stream>(stream));
}

void layer_norm(const LayerNormArgs& args, void* stream) {
  launch_layer_norm<Tuning>(args, static_cast<Stream>(stream));
}

void rms_norm_gated(const GatedNormArgs& args, void* stream) {
  launch_rms_norm_gated<Tuning>(args, static_cast<Stream>(stream));
}

void rotary(const RotaryArgs& args, void* stream) {
  launch_rotary<Tuning>(args, static_cast<Stream>(stream));
}

void qk_norm_rope(const QkNormRopeArgs& args, void* stream) {
  launch_qk_norm_rope<Tuning>(args, static_cast<Stream>(stream));
}

}  // namespace vllm_ops::gpu
