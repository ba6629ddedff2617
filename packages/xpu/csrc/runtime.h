// SPDX-License-Identifier: Apache-2.0
// From a function's address on the host to the kernel on a queue. Free of torch.
#pragma once

#include <string>
#include <sycl/sycl.hpp>

namespace vllm_ops::xpu {

// The kernel behind an address, for the device of `queue`. Compiles its unit where that has not
// happened yet. Throws std::exception with the compiler's message.
const sycl::kernel& kernel_for(const sycl::queue& queue, const void* address);

// Compiles unit `unit` of units(). False where it was there already.
bool compile_unit(const sycl::queue& queue, int unit);

// The queue of the SYCL CPU device, for tensors in ordinary memory. Throws where there is none.
sycl::queue& cpu_queue();
void* cpu_queue_or_null(const char** reason);
bool is_cpu_queue(const sycl::queue* queue);

// Name and driver of a queue's device.
std::string describe(const sycl::queue& queue);

// For launch_error() of this thread.
void remember_error(const char* what);

}  // namespace vllm_ops::xpu
