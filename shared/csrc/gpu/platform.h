// SPDX-License-Identifier: Apache-2.0
// The few things that CUDA, HIP and the emulator spell differently. Each platform file defines
//
//   VLLM_OPS_FN, VLLM_OPS_KERNEL(threads)   function and kernel qualifiers
//   VLLM_OPS_SHARED(T, name, count)         a Shared<T>: load, store, load16, store16
//   thread_x/y/z, block_dim_x/y/z, block_x/y, grid_x/y, warp_size
//   sync_block, shfl_xor
//   load1, store1, load16, store16          global memory
//   half2_to_floats, floats_to_half2, floats_to_bfloat162
//   Float64, float64_to_float                a double in memory; not every GPU computes with it
//   expf_, erfcf_, expm1f_, log1pf_, sqrtf_, fmaf_
//   product                                  rounded by itself, whatever it is then added to
//   Stream, launch, max_blocks, kSmallestWarp   host side
//
// and nothing else differs between them.
#pragma once

#include "types.h"

#if defined(VLLM_OPS_SIMT)
#include "simt_platform.h"  // found on the include path of the tests
#elif defined(VLLM_OPS_SYCL)
#include "platform_sycl.h"
#elif defined(__HIP__)
#include "platform_hip.h"
#else
#include "platform_cuda.h"
#endif
