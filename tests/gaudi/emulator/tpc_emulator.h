// SPDX-License-Identifier: Apache-2.0
// The TPC-C types and intrinsics that the kernels of vllm_ops use, on the host: names, arguments
// and meaning by the public TPC-C documentation, one lane after the other. It shows arithmetic,
// tails, index space and access patterns; not latency, not the accuracy of the special functions,
// which are the C library's here, and not the treatment of denormal numbers, which are kept here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "machine.h"

// On the device each core has its own local memory.
#define __local__ static thread_local

typedef float float64 __attribute__((ext_vector_type(64)));
typedef unsigned short bfloat128 __attribute__((ext_vector_type(128)));
typedef int int5 __attribute__((ext_vector_type(5)));

struct float128 {
  float64 v1, v2;
};
struct tensor {
  int id;
};

namespace emulator {

struct Place {
  int at[kMaxDims];
  explicit Place(int5 coordinates) {
    for (int d = 0; d < kMaxDims; ++d) at[d] = coordinates[d];
  }
};

template <class Vector, class Element, int kLanes>
Vector load(int5 coordinates, tensor from) {
  const Place place(coordinates);
  Vector result;
  for (int lane = 0; lane < kLanes; ++lane) {
    Element value = 0;
    if (const char* source = element(from.id, place.at, lane, false)) {
      std::memcpy(&value, source, sizeof(value));
    }
    result[lane] = value;
  }
  return result;
}

template <class Vector, class Element, int kLanes>
void store(int5 coordinates, tensor to, Vector vector) {
  const Place place(coordinates);
  for (int lane = 0; lane < kLanes; ++lane) {
    const Element value = vector[lane];
    if (char* target = element(to.id, place.at, lane, true)) {
      std::memcpy(target, &value, sizeof(value));
    }
  }
}

inline float widen(unsigned short bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float result;
  std::memcpy(&result, &wide, sizeof(result));
  return result;
}

// To nearest, ties to even; NaN stays NaN.
inline unsigned short narrow(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) return 0x7fc0;
  return static_cast<unsigned short>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Where element `lane` of half `half` of a converted vector is.
inline int element_of(int half, int lane) {
  return machine().linear_lanes ? 64 * half + lane : 2 * lane + half;
}

template <class F>
float64 map(float64 a, F f) {
  for (int i = 0; i < 64; ++i) a[i] = f(a[i]);
  return a;
}

template <class F>
float64 map(float64 a, float64 b, F f) {
  for (int i = 0; i < 64; ++i) a[i] = f(a[i], b[i]);
  return a;
}

}  // namespace emulator

// ---- index space and tensors ----

inline int5 get_index_space_offset() {
  int5 result;
  for (int d = 0; d < emulator::kMaxDims; ++d) result[d] = emulator::machine().offset[d];
  return result;
}

inline int5 get_index_space_size() {
  int5 result;
  for (int d = 0; d < emulator::kMaxDims; ++d) result[d] = emulator::machine().size[d];
  return result;
}

inline int get_dim_size(tensor t, int dim) {
  return static_cast<int>(emulator::machine().tensors[t.id].size[dim]);
}

inline float64 v_f32_ld_tnsr_b(int5 at, tensor from) {
  return emulator::load<float64, float, 64>(at, from);
}
inline bfloat128 v_bf16_ld_tnsr_b(int5 at, tensor from) {
  return emulator::load<bfloat128, unsigned short, 128>(at, from);
}
inline void v_f32_st_tnsr(int5 at, tensor to, float64 value) {
  emulator::store<float64, float, 64>(at, to, value);
}
inline void v_bf16_st_tnsr(int5 at, tensor to, bfloat128 value) {
  emulator::store<bfloat128, unsigned short, 128>(at, to, value);
}

// ---- arithmetic ----

inline float64 v_f32_add_b(float64 a, float64 b) { return a + b; }
inline float64 v_f32_mul_b(float64 a, float64 b) { return a * b; }
inline float64 v_f32_mac_b(float64 a, float64 b, float64 accumulator) {
  for (int i = 0; i < 64; ++i) accumulator[i] = std::fma(a[i], b[i], accumulator[i]);
  return accumulator;
}
inline float64 v_f32_abs_b(float64 a) {
  return emulator::map(a, [](float v) { return std::fabs(v); });
}
inline float64 v_f32_min_b(float64 a, float64 b) {
  return emulator::map(a, b, [](float v, float w) { return v < w ? v : w; });
}
inline float64 v_f32_max_b(float64 a, float64 b) {
  return emulator::map(a, b, [](float v, float w) { return v > w ? v : w; });
}
inline float64 v_f32_sel_less_f32_b(float64 a, float64 b, float64 c, float64 d) {
  for (int i = 0; i < 64; ++i) c[i] = a[i] < b[i] ? c[i] : d[i];
  return c;
}
inline float64 v_f32_sel_grt_f32_b(float64 a, float64 b, float64 c, float64 d) {
  return v_f32_sel_less_f32_b(b, a, c, d);
}

// ---- special functions ----

inline float64 v_exp_f32(float64 a) {
  return emulator::map(a, [](float v) { return std::exp(v); });
}
inline float64 v_div_f32(float64 a, float64 b) { return a / b; }
inline float64 v_rsqrt_f32(float64 a) {
  return emulator::map(a, [](float v) { return 1.0f / std::sqrt(v); });
}
// The sum of the 64 lanes, in every lane; halves are added to each other six times.
inline float64 v_f32_reduce_add(float64 a) {
  for (int distance = 32; distance > 0; distance /= 2) {
    float64 other;
    for (int i = 0; i < 64; ++i) other[i] = a[i ^ distance];
    a += other;
  }
  return a;
}

// ---- conversions ----

inline float128 v_convert_bf16_to_f32_all_b(bfloat128 a) {
  float128 result;
  for (int i = 0; i < 64; ++i) {
    result.v1[i] = emulator::widen(a[emulator::element_of(0, i)]);
    result.v2[i] = emulator::widen(a[emulator::element_of(1, i)]);
  }
  return result;
}

inline bfloat128 v_convert_f32_to_bf16_all_b(float128 a) {
  bfloat128 result;
  for (int i = 0; i < 64; ++i) {
    result[emulator::element_of(0, i)] = emulator::narrow(a.v1[i]);
    result[emulator::element_of(1, i)] = emulator::narrow(a.v2[i]);
  }
  return result;
}
