// SPDX-License-Identifier: Apache-2.0
// One registration function per operator family.
#pragma once

#include <torch/csrc/stable/library.h>

namespace vllm_ops {

using Library = torch::stable::detail::StableLibrary;

void register_activation(Library& m);
void register_linear(Library& m);
void register_linear_int8(Library& m);
void register_rms_norm(Library& m);
void register_norm(Library& m);
void register_rotary(Library& m);
void register_rotary_variants(Library& m);

}  // namespace vllm_ops
