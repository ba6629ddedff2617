// SPDX-License-Identifier: Apache-2.0
// One TPC-C kernel, unchanged, behind a C function. The build defines KERNEL_SOURCE, KERNEL_NAME
// and KERNEL_ENTRY, and VLLM_OPS_BF16 for bf16.
//
// The "ELF" that the glue embeds and hands to the graph compiler is the name of that function here.
#include <cstring>
#include <tuple>
#include <type_traits>

#include "tpc_emulator.h"

namespace {

#define main tpc_main
#include KERNEL_SOURCE
#undef main

template <class Argument>
Argument take(int& tensors, const uint32_t*& scalars) {
  if constexpr (std::is_same_v<Argument, tensor>) {
    return tensor{tensors++};
  } else {
    Argument value;
    static_assert(sizeof(value) == sizeof(uint32_t));
    std::memcpy(&value, scalars++, sizeof(value));
    return value;
  }
}

// Tensors are numbered in the order of the parameters, as the scalars are.
template <class... Arguments>
void call(void (*kernel)(Arguments...), const uint32_t* scalars) {
  int tensors = 0;
  std::tuple<Arguments...> arguments{take<Arguments>(tensors, scalars)...};
  std::apply(kernel, arguments);
}

template <class... Arguments>
constexpr unsigned scalar_count(void (*)(Arguments...)) {
  return (0u + ... + (std::is_same_v<Arguments, tensor> ? 0u : 1u));
}

}  // namespace

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

// Returns whether the glue gave as many scalars as the kernel takes.
extern "C" bool KERNEL_ENTRY(const uint32_t* scalars, unsigned count) {
  if (count != scalar_count(&tpc_main)) return false;
  call(&tpc_main, scalars);
  return true;
}

extern "C" const unsigned char JOIN(vllm_ops_elf_, KERNEL_NAME)[] = TEXT(KERNEL_ENTRY);
extern "C" const unsigned JOIN(vllm_ops_elf_size_, KERNEL_NAME) = sizeof(TEXT(KERNEL_ENTRY));
