// SPDX-License-Identifier: Apache-2.0
// One line on stderr where a compilation takes more than a second.
#pragma once

#include <condition_variable>
#include <mutex>
#include <sycl/sycl.hpp>
#include <thread>

#include "units.h"

namespace vllm_ops::xpu {

class Progress {
 public:
  Progress(const Unit& unit, const sycl::queue& queue);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace vllm_ops::xpu
