// SPDX-License-Identifier: Apache-2.0
#include "register.h"

#if defined(VLLM_OPS_SYCL)

// Which key is decided when the package is loaded: XPU, or CPU for the SYCL CPU device.
extern "C" __attribute__((visibility("default"))) void vllm_ops_xpu_register(const char* key) {
  using Library = torch::stable::detail::StableLibrary;
  static auto& m = *new Library(Library::Kind::IMPL, "vllm_ops", key, __FILE__, __LINE__);
  vllm_ops::binding::register_activations(m);
  vllm_ops::binding::register_norms(m);
  vllm_ops::binding::register_rotary(m);
}

#else

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

#endif
