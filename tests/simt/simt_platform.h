// SPDX-License-Identifier: Apache-2.0
// The emulator behind the names of shared/csrc/gpu/platform.h.
#pragma once

#include <math.h>
#include <string.h>

#include "simt.h"
#include "types.h"

#define VLLM_OPS_FN inline
#define VLLM_OPS_KERNEL(threads) void
// A static of each instantiation identifies the declaration.
#define VLLM_OPS_SHARED(T, name, count)     \
  static const char name##_declaration = 0; \
  const ::vllm_ops::gpu::Shared<T> name(&name##_declaration, count)

using dim3 = simt::Dim3;

namespace vllm_ops::gpu {

inline int thread_x() { return simt::current->x; }
inline int thread_y() { return simt::current->y; }
inline int thread_z() { return simt::current->z; }
inline int block_dim_x() { return simt::block_dim.x; }
inline int block_dim_y() { return simt::block_dim.y; }
inline int block_dim_z() { return simt::block_dim.z; }
inline int64_t block_x() { return simt::block_index.x; }
inline int64_t block_y() { return simt::block_index.y; }
inline int64_t grid_x() { return simt::grid_dim.x; }
inline int64_t grid_y() { return simt::grid_dim.y; }
inline int warp_size() { return simt::settings.warp; }

inline void sync_block(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  simt::sync_block({file, line});
}
inline float shfl_xor(float v, int mask, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  return simt::shfl_xor(v, mask, {file, line});
}

template <class T>
T load1(const T* p) {
  simt::check_access(p, sizeof(T), false);
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void store1(T* p, T v) {
  simt::check_access(p, sizeof(T), true);
  memcpy(p, &v, sizeof v);
}
inline Words load16(const void* p) {
  simt::check_alignment(p, sizeof(Words));
  simt::check_access(p, sizeof(Words), false);
  Words v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline void store16(void* p, const Words& v) {
  simt::check_alignment(p, sizeof(Words));
  simt::check_access(p, sizeof(Words), true);
  memcpy(p, &v, sizeof v);
}

template <class T>
class Shared {
 public:
  Shared(const void* key, int count) : block_(simt::shared_block(key, count, sizeof(T))) {}
  T load(int i) const {
    simt::check_shared(block_, i, 1, false);
    T v;
    memcpy(&v, block_.data + i * sizeof(T), sizeof v);
    return v;
  }
  void store(int i, T v) const {
    simt::check_shared(block_, i, 1, true);
    memcpy(block_.data + i * sizeof(T), &v, sizeof v);
  }
  Words load16(int i) const {
    simt::check_alignment(block_.data + i * sizeof(T), sizeof(Words));
    simt::check_shared(block_, i, sizeof(Words) / sizeof(T), false);
    Words v;
    memcpy(&v, block_.data + i * sizeof(T), sizeof v);
    return v;
  }
  void store16(int i, const Words& v) const {
    simt::check_alignment(block_.data + i * sizeof(T), sizeof(Words));
    simt::check_shared(block_, i, sizeof(Words) / sizeof(T), true);
    memcpy(block_.data + i * sizeof(T), &v, sizeof v);
  }

 private:
  simt::SharedBlock block_;
};

inline uint32_t float_to_bits(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}
inline float bits_to_float(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}
inline float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) {
    const float small = ldexpf(float(mantissa), -24);
    return sign != 0 ? -small : small;
  }
  return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
}
// To nearest even: adding a power of two whose last bit is worth as much as the half's rounds
// there.
inline uint16_t float_to_half(float v) {
  const uint32_t bits = float_to_bits(v), sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // 65520 and above
  if (magnitude < 0x38800000u) {                                  // below the smallest normal half
    const float shifted = bits_to_float(magnitude) + 0.5f;        // ulp(0.5) is 2^-24
    return uint16_t(sign | (float_to_bits(shifted) - float_to_bits(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return uint16_t(sign | (rounded - 0x38000000u) >> 13);
}
inline uint16_t float_to_bfloat16(float v) {
  const uint32_t bits = float_to_bits(v);
  if (v != v) return uint16_t(bits >> 16 | 0x40u);
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline uint32_t floats_to_half2(float low, float high) {
  return uint32_t(float_to_half(low)) | uint32_t(float_to_half(high)) << 16;
}
inline uint32_t floats_to_bfloat162(float low, float high) {
  return uint32_t(float_to_bfloat16(low)) | uint32_t(float_to_bfloat16(high)) << 16;
}

using Float64 = double;
inline float float64_to_float(Float64 v) { return float(v); }

// Every device has its own last bit here; the C library's are within an ulp. Where xielu cancels,
// an ulp of expm1 shows in fp16, so that one is rounded from double.
inline float expf_(float x) { return ::expf(x); }
inline float erfcf_(float x) { return ::erfcf(x); }
inline float expm1f_(float x) { return float(::expm1(double(x))); }
inline float log1pf_(float x) { return ::log1pf(x); }
inline float sqrtf_(float x) { return ::sqrtf(x); }
inline float fmaf_(float a, float b, float c) { return ::fmaf(a, b, c); }
inline float product(float a, float b) { return a * b; }

using Stream = void*;

constexpr int kSmallestWarp = 32;
inline int64_t max_blocks() { return simt::settings.max_blocks; }

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, Stream, const Args&... args) {
  simt::launch(grid, block, [&] { kernel(args...); });
}

}  // namespace vllm_ops::gpu
