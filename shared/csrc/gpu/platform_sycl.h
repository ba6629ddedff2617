// SPDX-License-Identifier: Apache-2.0
// Kernels are free functions over nd_item<3>; x is its last dimension, which varies fastest. On the
// host they are compiled too, for their addresses: these find the kernel that was built at run
// time.
#pragma once

#include <sycl/sycl.hpp>

#include "types.h"

#define VLLM_OPS_FN inline __attribute__((always_inline))
#if defined(__SYCL_DEVICE_ONLY__)
#define VLLM_OPS_KERNEL(threads)                                                             \
  SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((::sycl::ext::oneapi::experimental::nd_range_kernel<3>)) \
  SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                                                         \
      (::sycl::ext::oneapi::experimental::sub_group_size<::vllm_ops::gpu::kSubGroup>))       \
  void
#else
#define VLLM_OPS_KERNEL(threads) void
#endif
// A function's group_local_memory crashes the compiler of the SYCL CPU device (2026.2).
#define VLLM_OPS_SHARED(T, name, count)                                                         \
  static ::sycl::ext::oneapi::experimental::work_group_static<::vllm_ops::gpu::Block<T, count>> \
      name##_block;                                                                             \
  const ::vllm_ops::gpu::Shared<T> name {                                                       \
    static_cast<::vllm_ops::gpu::Block<T, count>&>(name##_block).data                           \
  }

namespace vllm_ops::gpu {

// Every Intel GPU that the package compiles for has sub-groups of 16.
constexpr int kSubGroup = 16;

template <class T, int kCount>
struct alignas(16) Block {
  T data[kCount];
};

VLLM_OPS_FN sycl::nd_item<3> item() { return sycl::ext::oneapi::this_work_item::get_nd_item<3>(); }
VLLM_OPS_FN int thread_x() { return int(item().get_local_id(2)); }
VLLM_OPS_FN int thread_y() { return int(item().get_local_id(1)); }
VLLM_OPS_FN int thread_z() { return int(item().get_local_id(0)); }
VLLM_OPS_FN int block_dim_x() { return int(item().get_local_range(2)); }
VLLM_OPS_FN int block_dim_y() { return int(item().get_local_range(1)); }
VLLM_OPS_FN int block_dim_z() { return int(item().get_local_range(0)); }
VLLM_OPS_FN int64_t block_x() { return int64_t(item().get_group(2)); }
VLLM_OPS_FN int64_t block_y() { return int64_t(item().get_group(1)); }
VLLM_OPS_FN int64_t grid_x() { return int64_t(item().get_group_range(2)); }
VLLM_OPS_FN int64_t grid_y() { return int64_t(item().get_group_range(1)); }
VLLM_OPS_FN constexpr int warp_size() { return kSubGroup; }

VLLM_OPS_FN void sync_block() { sycl::group_barrier(item().get_group()); }
VLLM_OPS_FN float shfl_xor(float v, int mask) {
  return sycl::permute_group_by_xor(item().get_sub_group(), v, mask);
}

template <class T>
VLLM_OPS_FN T load1(const T* p) {
  return *p;
}
template <class T>
VLLM_OPS_FN void store1(T* p, T v) {
  *p = v;
}
VLLM_OPS_FN Words load16(const void* p) { return *static_cast<const Words*>(p); }
VLLM_OPS_FN void store16(void* p, const Words& v) { *static_cast<Words*>(p) = v; }

template <class T>
struct Shared {
  T* data;
  VLLM_OPS_FN T load(int i) const { return data[i]; }
  VLLM_OPS_FN void store(int i, T v) const { data[i] = v; }
  VLLM_OPS_FN Words load16(int i) const { return gpu::load16(data + i); }
  VLLM_OPS_FN void store16(int i, const Words& v) const { gpu::store16(data + i, v); }
};

VLLM_OPS_FN uint32_t float_to_bits(float v) { return sycl::bit_cast<uint32_t>(v); }
VLLM_OPS_FN float bits_to_float(uint32_t bits) { return sycl::bit_cast<float>(bits); }
VLLM_OPS_FN float half_to_float(uint16_t bits) { return float(sycl::bit_cast<sycl::half>(bits)); }
VLLM_OPS_FN uint16_t float_to_half(float v) { return sycl::bit_cast<uint16_t>(sycl::half(v)); }
// To nearest even, in integers: SYCL's own bfloat16 is a device library on some devices.
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

// Arc A-series GPUs refuse a kernel that names double. To nearest even; what fp32 holds as a
// denormal number is rounded once, like the rest.
struct Float64 {
  uint64_t bits;
};
VLLM_OPS_FN float float64_to_float(Float64 v) {
  const uint32_t sign = uint32_t(v.bits >> 32) & 0x80000000u;
  const uint64_t magnitude = v.bits & 0x7fffffffffffffffu;
  if (magnitude > 0x7ff0000000000000u) return bits_to_float(sign | 0x7fc00000u);
  const int exponent = int(magnitude >> 52) - 1023;
  if (exponent > 127) return bits_to_float(sign | 0x7f800000u);
  if (exponent < -150) return bits_to_float(sign);
  const uint64_t mantissa = (magnitude & 0xfffffffffffffu) | 0x10000000000000u;
  const int shift = exponent < -126 ? 29 - 126 - exponent : 29;
  const uint64_t kept = mantissa >> shift, rest = mantissa & ((uint64_t(1) << shift) - 1);
  const uint64_t half = uint64_t(1) << (shift - 1);
  const uint32_t up = rest > half || (rest == half && (kept & 1u) != 0) ? 1u : 0u;
  // The leading bit of a normal number is one of the exponent; a carry goes there as well.
  const uint32_t above = exponent < -126 ? 0u : uint32_t(exponent + 126) << 23;
  return bits_to_float(sign | (above + uint32_t(kept) + up));
}

// OpenCL grants exp and expm1 3 ulp, which the SYCL CPU device uses up: of quick_gelu's fp16
// results 0.03 % were not those of torch. These are within 1 ulp, with the same bits on every
// device. x = n ln(2) + r, with a polynomial for (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2 (a minimax
// fit, 2^-28 of e^r).
struct Exponent {
  int n;
  float rest;  // e^r - 1
};
VLLM_OPS_FN float exp2_of(int n) { return bits_to_float(uint32_t(n + 127) << 23); }
VLLM_OPS_FN Exponent split_exp(float x) {
  const float inside = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;  // beyond: infinity or zero
  constexpr float kShift = 0x1.8p+23f;                                 // rounds to an integer
  const float n = sycl::fma(inside, 0x1.715476p+0f, kShift) - kShift;
  const float r = sycl::fma(n, 0x1.bd0106p-13f, sycl::fma(n, -0x1.63p-1f, inside));
  float tail = sycl::fma(1.381490962e-03f, r, 8.368674666e-03f);
  tail = sycl::fma(tail, r, 4.166837782e-02f);
  tail = sycl::fma(tail, r, 1.666652113e-01f);
  tail = sycl::fma(tail, r, 4.999999404e-01f);
  return {int(n), sycl::fma(tail, r * r, r)};
}
VLLM_OPS_FN float expf_(float x) {
  const Exponent e = split_exp(x);
  const int half = e.n / 2;  // in two steps, as 2^n alone may be out of range
  return (1.0f + e.rest) * exp2_of(half) * exp2_of(e.n - half);
}
VLLM_OPS_FN float expm1f_(float x) {
  const Exponent e = split_exp(x < -50.0f ? -50.0f : x);
  if (e.n > 100) return expf_(x);
  const float scale = exp2_of(e.n);
  return sycl::fma(scale, e.rest, scale - 1.0f);
}
VLLM_OPS_FN float erfcf_(float x) { return sycl::erfc(x); }
// One step of Newton's method brings OpenCL's 2 ulp below 1.
VLLM_OPS_FN float log1pf_(float x) {
  const float y = sycl::log1p(x);
  return y < 80.0f ? y - (expm1f_(y) - x) / (1.0f + x) : y;
}
VLLM_OPS_FN float sqrtf_(float x) { return sycl::sqrt(x); }
VLLM_OPS_FN float fmaf_(float a, float b, float c) { return sycl::fma(a, b, c); }
// Intel's compiler (2026.2) allows a pair of a sum and a difference of products to be fused when it
// makes vectors of them, -ffp-contract=off or not. A product by fma is rounded all the same.
VLLM_OPS_FN float product(float a, float b) { return sycl::fma(a, b, -0.0f); }

}  // namespace vllm_ops::gpu

#if !defined(__SYCL_DEVICE_ONLY__)
#include "runtime.h"  // of packages/xpu

namespace vllm_ops::gpu {

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

using Stream = sycl::queue*;

// Work-items of a dimension are counted in 32 bits by Intel's drivers; a work-group has at most
// 512.
constexpr int kSmallestWarp = kSubGroup;
inline int64_t max_blocks() { return INT64_C(1) << 22; }

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, Stream stream, const Args&... args) {
  try {
    const sycl::kernel& found = xpu::kernel_for(*stream, reinterpret_cast<const void*>(kernel));
    const sycl::range<3> local(block.z, block.y, block.x);
    const sycl::range<3> global(size_t(grid.z) * block.z, size_t(grid.y) * block.y,
                                size_t(grid.x) * block.x);
    stream->submit([&](sycl::handler& handler) {
      handler.set_args(static_cast<std::decay_t<Params>>(args)...);
      handler.parallel_for(sycl::nd_range<3>(global, local), found);
    });
    // Its tensors are read by the host, which knows no queue.
    if (xpu::is_cpu_queue(stream)) stream->wait_and_throw();
  } catch (const std::exception& error) {
    xpu::remember_error(error.what());
  }
}

}  // namespace vllm_ops::gpu
#endif
