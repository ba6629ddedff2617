// SPDX-License-Identifier: Apache-2.0
#include "dispatch/norm.h"
#include "launch.h"
#include "tuning.h"

namespace vllm_ops::gpu {

void rms_norm(const RmsNormArgs& args, void* stream) {
  launch_rms_norm<Tuning>(args, static_cast<Stream>(stream));
}

void layer_norm(const LayerNormArgs& args, void* stream) {
  launch_layer_norm<Tuning>(args, static_cast<Stream>(stream));
}

void rms_norm_gated(const GatedNormArgs& args, void* stream) {
  launch_rms_norm_gated<Tuning>(args, static_cast<Stream>(stream));
}

}  // namespace vllm_ops::gpu
