// SPDX-License-Identifier: Apache-2.0
#include "register.h"

// ROCm builds of torch use the CUDA key as well. The emulator registers under the CPU key.
#if defined(VLLM_OPS_SIMT)
#define VLLM_OPS_KEY CPU
#else
#define VLLM_OPS_KEY CUDA
#endif

STABLE_TORCH_LIBRARY_IMPL(vllm_ops, VLLM_OPS_KEY, m) {
  vllm_ops::binding::register_activations(m);
  vllm_ops::binding::register_norms(m);
  vllm_ops::binding::register_rotary(m);
}
