// SPDX-License-Identifier: Apache-2.0
// What the binding calls: each is defined by the launch files of a package. Nothing is allocated
// and nothing synchronises, so a launch may be captured in a graph.
#pragma once

#include "types.h"

namespace vllm_ops::gpu {

void gated(const GatedArgs& args, void* stream);
void unary(const UnaryArgs& args, void* stream);
void rms_norm(const RmsNormArgs& args, void* stream);
void layer_norm(const LayerNormArgs& args, void* stream);
void rms_norm_gated(const GatedNormArgs& args, void* stream);
void rotary(const RotaryArgs& args, void* stream);
void qk_norm_rope(const QkNormRopeArgs& args, void* stream);

// The error of the launches since the last call, or null.
const char* launch_error();
// `sm_90`, `gfx942`: the architecture of the current device.
const char* architecture();

}  // namespace vllm_ops::gpu
