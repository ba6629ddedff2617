// SPDX-License-Identifier: Apache-2.0
// The kernels of the library `vllm_ops` under the CPU dispatch key. The schemas belong to
// vllm_ops.shared, which may be imported before or after this library is loaded.
#include "register.h"

STABLE_TORCH_LIBRARY_IMPL(vllm_ops, CPU, m) {
  vllm_ops::register_activation(m);
  vllm_ops::register_linear(m);
  vllm_ops::register_linear_int8(m);
  vllm_ops::register_rms_norm(m);
  vllm_ops::register_norm(m);
  vllm_ops::register_rotary(m);
  vllm_ops::register_rotary_variants(m);
}
