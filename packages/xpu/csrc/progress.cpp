// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <stdio.h>

#include <chrono>

#include "runtime.h"

namespace vllm_ops::xpu {

Progress::Progress(const Unit& unit, const sycl::queue& queue) {
  // The words are made here: the thread that waits shall not call into SYCL.
  char line[512];
  snprintf(line, sizeof line, "vllm_ops.xpu: compiling %d %s kernels for %s on %s\n",
           int(unit.instances.size()), unit.family, unit.dtype, describe(queue).c_str());
  thread_ = std::thread([this, text = std::string(line)] {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!condition_.wait_for(lock, std::chrono::seconds(1), [this] { return done_; })) {
      fputs(text.c_str(), stderr);
    }
  });
}

Progress::~Progress() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  condition_.notify_one();
  thread_.join();
}

}  // namespace vllm_ops::xpu
