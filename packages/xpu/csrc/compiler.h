// SPDX-License-Identifier: Apache-2.0
// The kernels of a unit: compiled at run time from the sources within this library, or found in it
// where icpx built it ahead of time.
#pragma once

#include <sycl/sycl.hpp>
#include <vector>

#include "units.h"

namespace vllm_ops::xpu {

// In the order of unit.instances. Throws std::runtime_error with the compiler's message.
std::vector<sycl::kernel> compile(const sycl::queue& queue, const Unit& unit);

}  // namespace vllm_ops::xpu
