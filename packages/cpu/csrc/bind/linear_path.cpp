// SPDX-License-Identifier: Apache-2.0
#include "linear_path.h"

#include <sstream>

#include "common.h"

#ifdef VLLM_OPS_X86_TIERS
#include <cpuid.h>
#endif

namespace vllm_ops {
namespace {

// The most rows at which the kernel beats oneDNN's bf16 instructions, see docs/linear.md.
constexpr int64_t kFewRows = 8;

bool ask_torch(const char* op) {
  StableIValue stack[1] = {};
  if (torch_call_dispatcher(op, "", stack, TORCH_ABI_VERSION) != AOTI_TORCH_SUCCESS) return false;
  return to<bool>(stack[0]);
}

LinearReport ask() {
  LinearReport report;
  report.tier = kernels().name;
#ifdef VLLM_OPS_X86_TIERS
  report.x86 = true;
  // Intel SDM vol. 2A, CPUID leaf 7. The tier says whether the system saves the AVX-512 registers,
  // XCR0 whether it saves the tiles.
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    unsigned xcr0 = 0, high = 0;
    unsigned leaf1[4] = {};
    __get_cpuid(1, &leaf1[0], &leaf1[1], &leaf1[2], &leaf1[3]);
    if (leaf1[2] >> 27 & 1) __asm__("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    const bool tiles = (xcr0 >> 17 & 3) == 3 && (d >> 24 & 1);
    report.amx_bf16 = tiles && (d >> 22 & 1);
    report.avx512_fp16 = d >> 23 & 1;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
      report.avx512_bf16 = a >> 5 & 1;
      report.amx_fp16 = tiles && (a >> 21 & 1);
    }
  }
#endif
  report.torch_bf16 = ask_torch("mkldnn::_is_mkldnn_bf16_supported");
  report.torch_fp16 = ask_torch("mkldnn::_is_mkldnn_fp16_supported");
  return report;
}

}  // namespace

const LinearReport& linear_report() {
  static const LinearReport report = ask();
  return report;
}

LinearPath linear_path(const LinearReport& report, int dtype) {
  if (dtype != kBF16 && dtype != kF16) return {0, "torch's own linear: not half precision"};
  if (!report.x86) return {0, "torch's own linear: the kernel is for x86-64"};
  if (report.tier == "baseline") return {0, "torch's own linear: the kernel needs AVX2"};
  const bool bf16 = dtype == kBF16;
  const std::string name = bf16 ? "bfloat16" : "float16";
  const bool amx = bf16 ? report.amx_bf16 : report.amx_fp16;
  const bool avx = bf16 ? report.avx512_bf16 : report.avx512_fp16;
  const std::string avx_name = bf16 ? "AVX512-BF16" : "AVX512-FP16";
  if (!amx && !avx) {
    return {kAnyRows, "no AMX or " + avx_name + " for torch's " + name + " linear"};
  }
  const std::string has = amx ? "AMX" : avx_name;
  if (report.tier != "avx512") return {kAnyRows, "VLLM_OPS_CPU_ISA rules out " + has};
  if (!(bf16 ? report.torch_bf16 : report.torch_fp16)) {
    return {kAnyRows, "torch leaves " + has + " unused for " + name};
  }
  // oneDNN reads a weight at half the speed of memory here. Not measured with AMX or AVX512-FP16.
  if (bf16 && !amx) {
    return {kFewRows, "up to " + std::to_string(kFewRows) +
                          " rows, more by torch's own linear: it " + "has " + has + " for " + name};
  }
  return {0, "torch's own linear: it has " + has + " for " + name};
}

}  // namespace vllm_ops

const char* vllm_ops_cpu_linear_path(const char* dtype, const char* report) {
  using namespace vllm_ops;
  thread_local std::string answer;
  const std::string name = dtype;
  const int index = name == "bfloat16" ? kBF16 : name == "float16" ? kF16 : kF32;
  LinearPath path;
  if (report == nullptr) {
    path = linear_path(linear_report(), index);
  } else {
    LinearReport r;
    std::istringstream words(report);
    for (std::string word; words >> word;) {
      if (word == "x86") {
        r.x86 = true;
      } else if (word == "avx512_bf16") {
        r.avx512_bf16 = true;
      } else if (word == "avx512_fp16") {
        r.avx512_fp16 = true;
      } else if (word == "amx_bf16") {
        r.amx_bf16 = true;
      } else if (word == "amx_fp16") {
        r.amx_fp16 = true;
      } else if (word == "torch_bf16") {
        r.torch_bf16 = true;
      } else if (word == "torch_fp16") {
        r.torch_fp16 = true;
      } else {
        r.tier = word;
      }
    }
    path = linear_path(r, index);
  }
  const std::string kind = path.most_rows == 0 ? "native"
                           : path.most_rows == kAnyRows
                               ? "kernel"
                               : "kernel " + std::to_string(path.most_rows);
  answer = kind + ": " + path.reason;
  return answer.c_str();
}
