// SPDX-License-Identifier: Apache-2.0
// Device code uses the compiler's builtins and the device library's names only, so it needs no
// header of a ROCm installation; the host side needs hip_runtime.h for the launch.
#pragma once

#include <hip/hip_runtime.h>

#include "types.h"

#define VLLM_OPS_FN __attribute__((device, always_inline)) inline
#define VLLM_OPS_KERNEL(threads) \
  __attribute__((global, amdgpu_flat_work_group_size(1, threads))) void
#define VLLM_OPS_SHARED(T, name, count)                              \
  __attribute__((shared, aligned(16))) static T name##_bytes[count]; \
  const ::vllm_ops::gpu::Shared<T> name { name##_bytes }

extern "C" {
__attribute__((device, const)) float __ocml_exp_f32(float);
__attribute__((device, const)) float __ocml_erfc_f32(float);
__attribute__((device, const)) float __ocml_expm1_f32(float);
__attribute__((device, const)) float __ocml_log1p_f32(float);
}

namespace vllm_ops::gpu {

VLLM_OPS_FN int thread_x() { return __builtin_amdgcn_workitem_id_x(); }
VLLM_OPS_FN int thread_y() { return __builtin_amdgcn_workitem_id_y(); }
VLLM_OPS_FN int thread_z() { return __builtin_amdgcn_workitem_id_z(); }
VLLM_OPS_FN int block_dim_x() { return __builtin_amdgcn_workgroup_size_x(); }
VLLM_OPS_FN int block_dim_y() { return __builtin_amdgcn_workgroup_size_y(); }
VLLM_OPS_FN int block_dim_z() { return __builtin_amdgcn_workgroup_size_z(); }
VLLM_OPS_FN int64_t block_x() { return __builtin_amdgcn_workgroup_id_x(); }
VLLM_OPS_FN int64_t block_y() { return __builtin_amdgcn_workgroup_id_y(); }
// The builtins count threads, not blocks.
VLLM_OPS_FN int64_t grid_x() { return __builtin_amdgcn_grid_size_x() / uint32_t(block_dim_x()); }
VLLM_OPS_FN int64_t grid_y() { return __builtin_amdgcn_grid_size_y() / uint32_t(block_dim_y()); }
VLLM_OPS_FN int warp_size() { return __builtin_amdgcn_wavefrontsize(); }

VLLM_OPS_FN void sync_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
VLLM_OPS_FN uint32_t float_to_bits(float v) { return __builtin_bit_cast(uint32_t, v); }
VLLM_OPS_FN float bits_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
VLLM_OPS_FN float shfl_xor(float v, int mask) {
  const unsigned lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
  const int from = int(lane ^ unsigned(mask)) << 2;
  return bits_to_float(__builtin_amdgcn_ds_bpermute(from, int(float_to_bits(v))));
}

template <class T>
VLLM_OPS_FN T load1(const T* p) {
  return *p;
}
template <class T>
VLLM_OPS_FN void store1(T* p, T v) {
  *p = v;
}
using Vector4 = uint32_t __attribute__((ext_vector_type(4)));
VLLM_OPS_FN Words load16(const void* p) {
  const Vector4 v = *static_cast<const Vector4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
VLLM_OPS_FN void store16(void* p, const Words& v) {
  *static_cast<Vector4*>(p) = Vector4{v.w[0], v.w[1], v.w[2], v.w[3]};
}

template <class T>
struct Shared {
  T* data;
  VLLM_OPS_FN T load(int i) const { return data[i]; }
  VLLM_OPS_FN void store(int i, T v) const { data[i] = v; }
  VLLM_OPS_FN Words load16(int i) const { return gpu::load16(data + i); }
  VLLM_OPS_FN void store16(int i, const Words& v) const { gpu::store16(data + i, v); }
};

VLLM_OPS_FN float half_to_float(uint16_t bits) { return float(__builtin_bit_cast(_Float16, bits)); }
VLLM_OPS_FN uint16_t float_to_half(float v) { return __builtin_bit_cast(uint16_t, _Float16(v)); }
// To nearest even. The first targets with an instruction for it, gfx950 and gfx12.5, need a newer
// compiler than the one that builds the package.
VLLM_OPS_FN uint16_t float_to_bfloat16(float v) {
  const uint32_t bits = float_to_bits(v);
  const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  return uint16_t((v == v ? rounded : bits | 0x400000u) >> 16);
}
VLLM_OPS_FN uint32_t floats_to_half2(float low, float high) {
  return uint32_t(float_to_half(low)) | uint32_t(float_to_half(high)) << 16;
}
VLLM_OPS_FN uint32_t floats_to_bfloat162(float low, float high) {
  return uint32_t(float_to_bfloat16(low)) | uint32_t(float_to_bfloat16(high)) << 16;
}

using Float64 = double;
VLLM_OPS_FN float float64_to_float(Float64 v) { return float(v); }

VLLM_OPS_FN float expf_(float x) { return __ocml_exp_f32(x); }
VLLM_OPS_FN float erfcf_(float x) { return __ocml_erfc_f32(x); }
VLLM_OPS_FN float expm1f_(float x) { return __ocml_expm1_f32(x); }
VLLM_OPS_FN float log1pf_(float x) { return __ocml_log1p_f32(x); }
VLLM_OPS_FN float sqrtf_(float x) { return __builtin_sqrtf(x); }
VLLM_OPS_FN float fmaf_(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
VLLM_OPS_FN float product(float a, float b) { return a * b; }

using Stream = hipStream_t;

// A launch may have at most 2^32 - 1 threads in one dimension, and a block has up to 1024.
constexpr int kSmallestWarp = 32;
inline int64_t max_blocks() { return INT64_C(1) << 21; }

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, Stream stream, const Args&... args) {
  kernel<<<grid, block, 0, stream>>>(args...);
}

}  // namespace vllm_ops::gpu
