// SPDX-License-Identifier: Apache-2.0
// Which tier's kernels run on this CPU.
#pragma once

#include "kernels/table.h"

namespace vllm_ops {

// The tier in use, chosen when the library is loaded: the widest one that the CPU and the operating
// system support, or the one that VLLM_OPS_CPU_ISA names. Null if that variable is refused.
extern const KernelTable* const active_kernels;

// Why active_kernels is null; "" if it is not.
extern const char* const isa_error;

}  // namespace vllm_ops

// For the Python module, through ctypes.
extern "C" {
__attribute__((visibility("default"))) const char* vllm_ops_cpu_isa();
__attribute__((visibility("default"))) const char* vllm_ops_cpu_isa_error();
}
