// SPDX-License-Identifier: Apache-2.0
// The compiled kernels inside this library; the build writes the file that defines these symbols.
#pragma once

#define VLLM_OPS_ELF(kernel)                                     \
  extern "C" const unsigned char vllm_ops_elf_##kernel##_bf16[]; \
  extern "C" const unsigned vllm_ops_elf_size_##kernel##_bf16;   \
  extern "C" const unsigned char vllm_ops_elf_##kernel##_f32[];  \
  extern "C" const unsigned vllm_ops_elf_size_##kernel##_f32;

VLLM_OPS_ELF(silu_and_mul)
VLLM_OPS_ELF(gelu_and_mul)
VLLM_OPS_ELF(fused_add_rms_norm)
VLLM_OPS_ELF(qk_norm)
#undef VLLM_OPS_ELF
