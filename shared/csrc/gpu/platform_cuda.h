// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "types.h"

#define VLLM_OPS_FN __device__ __forceinline__
#define VLLM_OPS_KERNEL(threads) __global__ void __launch_bounds__(threads, 1)
#define VLLM_OPS_SHARED(T, name, count)           \
  __shared__ __align__(16) T name##_bytes[count]; \
  const ::vllm_ops::gpu::Shared<T> name { name##_bytes }

namespace vllm_ops::gpu {

VLLM_OPS_FN int thread_x() { return threadIdx.x; }
VLLM_OPS_FN int thread_y() { return threadIdx.y; }
VLLM_OPS_FN int thread_z() { return threadIdx.z; }
VLLM_OPS_FN int block_dim_x() { return blockDim.x; }
VLLM_OPS_FN int block_dim_y() { return blockDim.y; }
VLLM_OPS_FN int block_dim_z() { return blockDim.z; }
VLLM_OPS_FN int64_t block_x() { return blockIdx.x; }
VLLM_OPS_FN int64_t block_y() { return blockIdx.y; }
VLLM_OPS_FN int64_t grid_x() { return gridDim.x; }
VLLM_OPS_FN int64_t grid_y() { return gridDim.y; }
VLLM_OPS_FN constexpr int warp_size() { return 32; }

VLLM_OPS_FN void sync_block() { __syncthreads(); }
VLLM_OPS_FN float shfl_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }

template <class T>
VLLM_OPS_FN T load1(const T* p) {
  return *p;
}
template <class T>
VLLM_OPS_FN void store1(T* p, T v) {
  *p = v;
}
VLLM_OPS_FN Words load16(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
VLLM_OPS_FN void store16(void* p, const Words& v) {
  *static_cast<uint4*>(p) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
}

template <class T>
struct Shared {
  T* data;
  VLLM_OPS_FN T load(int i) const { return data[i]; }
  VLLM_OPS_FN void store(int i, T v) const { data[i] = v; }
  VLLM_OPS_FN Words load16(int i) const { return gpu::load16(data + i); }
  VLLM_OPS_FN void store16(int i, const Words& v) const { gpu::store16(data + i, v); }
};

VLLM_OPS_FN float half_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
VLLM_OPS_FN uint16_t float_to_half(float v) { return __half_as_ushort(__float2half_rn(v)); }
VLLM_OPS_FN uint16_t float_to_bfloat16(float v) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}
// Two at a time, low half first: one conversion instruction from sm_80 on.
VLLM_OPS_FN uint32_t floats_to_half2(float low, float high) {
  return uint32_t(float_to_half(low)) | uint32_t(float_to_half(high)) << 16;
}
VLLM_OPS_FN uint32_t floats_to_bfloat162(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return uint32_t(__bfloat16_as_ushort(pair.x)) | uint32_t(__bfloat16_as_ushort(pair.y)) << 16;
}
VLLM_OPS_FN float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
VLLM_OPS_FN uint32_t float_to_bits(float v) { return __float_as_uint(v); }

using Float64 = double;
VLLM_OPS_FN float float64_to_float(Float64 v) { return float(v); }

VLLM_OPS_FN float expf_(float x) { return expf(x); }
VLLM_OPS_FN float erfcf_(float x) { return erfcf(x); }
VLLM_OPS_FN float expm1f_(float x) { return expm1f(x); }
VLLM_OPS_FN float log1pf_(float x) { return log1pf(x); }
VLLM_OPS_FN float sqrtf_(float x) { return sqrtf(x); }
VLLM_OPS_FN float fmaf_(float a, float b, float c) { return fmaf(a, b, c); }
VLLM_OPS_FN float product(float a, float b) { return a * b; }

using Stream = cudaStream_t;

constexpr int kSmallestWarp = 32;
inline int64_t max_blocks() { return INT32_MAX; }

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, Stream stream, const Args&... args) {
  kernel<<<grid, block, 0, stream>>>(args...);
}

}  // namespace vllm_ops::gpu
