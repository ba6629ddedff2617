// SPDX-License-Identifier: Apache-2.0
// In place of ROCm's header where only device code is compiled: what the launch files name on the
// host side, declared and never defined.
#pragma once

#include <stddef.h>

struct dim3 {
  unsigned x, y, z;
  __attribute__((host, device)) constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
      : x(x_), y(y_), z(z_) {}
};
using hipStream_t = struct ihipStream_t*;
using hipError_t = int;

extern "C" hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, size_t, hipStream_t);
extern "C" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = nullptr);
