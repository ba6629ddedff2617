// SPDX-License-Identifier: Apache-2.0
// Compiled units on disk, as SPIR-V: what remains is the driver's own compilation, which most
// drivers cache themselves. VLLM_OPS_XPU_CACHE names the folder, "off" goes without.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <sycl/sycl.hpp>
#include <vector>

#include "units.h"

namespace vllm_ops::xpu {

struct Program {
  struct Entry {
    int image;
    std::string name;  // of the kernel in its image
  };
  std::vector<Entry> entries;  // in the order of the unit's instances
  std::vector<std::vector<std::byte>> images;
};

// Everything that the SPIR-V depends on: sources, options, runtime, device and driver.
std::string cache_key(const sycl::queue& queue, const Unit& unit);

// Nothing where there is no such file, or one that was cut short, altered, or belongs to another
// user.
std::optional<Program> read_cache(const std::string& key);

// Written beside its place and then moved there, so that a reader sees all of it or nothing. A disk
// that is full or read-only is no error.
void write_cache(const std::string& key, const Program& program) noexcept;

}  // namespace vllm_ops::xpu
