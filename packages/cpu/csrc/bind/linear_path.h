// SPDX-License-Identifier: Apache-2.0
// Kernel or native for `linear`: the one place where that is decided.
#pragma once

#include <cstdint>
#include <string>

namespace vllm_ops {

// What the decision rests on.
struct LinearReport {
  bool x86 = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;
  bool amx_fp16 = false;
  std::string tier;         // the kernels in use: baseline, avx2, avx512
  bool torch_bf16 = false;  // torch hands bfloat16 to oneDNN
  bool torch_fp16 = false;
};

// This CPU, this library, this torch; asked once.
const LinearReport& linear_report();

struct LinearPath {
  int64_t most_rows = 0;  // the kernel runs up to this many rows of x, torch's own beyond
  std::string reason;
};

constexpr int64_t kAnyRows = INT64_MAX;

// `dtype` is the kernels' index of the weight's dtype.
LinearPath linear_path(const LinearReport& report, int dtype);

}  // namespace vllm_ops

// For the Python module, through ctypes: "kernel: ...", "kernel 8: ..." for up to eight rows, or
// "native: ..." for dtype "bfloat16", "float16" or another. `report` is null for this CPU, else
// words from "x86 avx512_bf16 avx512_fp16 amx_bf16 amx_fp16 torch_bf16 torch_fp16" and a tier. The
// answer lasts until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* vllm_ops_cpu_linear_path(
    const char* dtype, const char* report);
