// SPDX-License-Identifier: Apache-2.0
// 128 elements at a time as two fp32 vectors, whatever the dtype of the tensor, so that every
// kernel is written once. The build defines VLLM_OPS_BF16 for bf16 tensors; without it they are
// fp32.
//
// Which element sits in which lane differs between the two (the bf16 conversions may interleave),
// so kernels combine only vectors that were loaded the same way.
#ifndef VLLM_OPS_GAUDI_TPC_VEC_H_
#define VLLM_OPS_GAUDI_TPC_VEC_H_

#define STEP 128  // elements of one load

#ifdef VLLM_OPS_BF16
typedef bfloat128 packed;
#define SAVED_STEPS 256  // 64 KiB of a core's 80 KiB of local memory
#else
typedef float128 packed;
#define SAVED_STEPS 128
#endif

// Elements beyond the tensor read as zero.
static inline packed load(int5 at, tensor from) {
#ifdef VLLM_OPS_BF16
  return v_bf16_ld_tnsr_b(at, from);
#else
  packed result;
  result.v1 = v_f32_ld_tnsr_b(at, from);
  at[0] += 64;
  result.v2 = v_f32_ld_tnsr_b(at, from);
  return result;
#endif
}

// Elements beyond the tensor are not written.
static inline void store(int5 at, tensor to, packed value) {
#ifdef VLLM_OPS_BF16
  v_bf16_st_tnsr(at, to, value);
#else
  v_f32_st_tnsr(at, to, value.v1);
  at[0] += 64;
  v_f32_st_tnsr(at, to, value.v2);
#endif
}

static inline float128 widen(packed value) {
#ifdef VLLM_OPS_BF16
  return v_convert_bf16_to_f32_all_b(value);
#else
  return value;
#endif
}

// To nearest, ties to even.
static inline packed narrow(float128 value) {
#ifdef VLLM_OPS_BF16
  return v_convert_f32_to_bf16_all_b(value);
#else
  return value;
#endif
}

static inline float128 rounded(float128 value) { return widen(narrow(value)); }

static inline float128 add(float128 a, float128 b) {
  a.v1 = v_f32_add_b(a.v1, b.v1);
  a.v2 = v_f32_add_b(a.v2, b.v2);
  return a;
}

static inline float128 multiply(float128 a, float128 b) {
  a.v1 = v_f32_mul_b(a.v1, b.v1);
  a.v2 = v_f32_mul_b(a.v2, b.v2);
  return a;
}

#endif  // VLLM_OPS_GAUDI_TPC_VEC_H_
