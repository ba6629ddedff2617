// SPDX-License-Identifier: Apache-2.0
// Registration, and the way to the native reference for fp64, which has no kernels.
#pragma once

#include <torch/csrc/stable/library.h>

#include "call.h"

namespace vllm_ops::binding {

inline bool is_double(StableIValue tensor) {
  int32_t dtype = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_get_dtype(torch::stable::detail::to<AtenTensorHandle>(tensor), &dtype));
  return dtype == aoti_torch_dtype_float64();
}

// Runs vllm_ops_native::<op>, the reference under a name that the dispatcher can be asked for from
// within a kernel (ops/native_fallback.py), on the same stack. `optional` is the argument without
// which the second output is None, or -1.
inline void run_native(const char* op, StableIValue* stack, int optional) {
  const bool has_second =
      optional < 0 || stack[optional] != torch::stable::detail::from(std::nullopt);
  const std::string name = std::string("vllm_ops_native::") + op;
  if (torch_call_dispatcher(name.c_str(), "", stack, TORCH_ABI_VERSION) != AOTI_TORCH_SUCCESS) {
    fail(op, ": the native reference failed on float64 arguments");
  }
  if (optional < 0) return;
  std::optional<Tensor> second = torch::stable::detail::to<Tensor>(stack[1]);
  if (!has_second) second.reset();
  stack[1] = torch::stable::detail::from(second);
}

// Argument `which` decides the dtype.
#define VLLM_OPS_IMPL_OPTIONAL(m, op, which, optional)                     \
  m.impl(#op, [](StableIValue* stack, uint64_t inputs, uint64_t outputs) { \
    if (is_double(stack[which])) {                                         \
      run_native(#op, stack, optional);                                    \
    } else {                                                               \
      TORCH_BOX (&op)(stack, inputs, outputs);                             \
    }                                                                      \
  })
#define VLLM_OPS_IMPL(m, op, which) VLLM_OPS_IMPL_OPTIONAL(m, op, which, -1)

void register_activations(torch::stable::detail::StableLibrary& m);
void register_norms(torch::stable::detail::StableLibrary& m);
void register_rotary(torch::stable::detail::StableLibrary& m);

}  // namespace vllm_ops::binding
