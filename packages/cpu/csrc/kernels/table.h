// SPDX-License-Identifier: Apache-2.0
// The interface between the bindings and the kernels of one ISA tier.
//
// Kernels know nothing of torch and check nothing: every pointer, stride and size that arrives here
// has been validated. Strides count elements of the tensor's own dtype and are per row; the last
// dimension always has unit stride. `rows` rows share one stride, so the bindings split an
// arbitrary layout into runs (see bind/rows.h).
#pragma once

#include <stdint.h>

// The one symbol that a kernel file of a tier exports: rms_norm_table_avx2 and the like.
#define VLLM_OPS_TABLE_(family, tier) family##_table_##tier
#define VLLM_OPS_TABLE_OF(family, tier) VLLM_OPS_TABLE_(family, tier)
#define VLLM_OPS_TABLE(family) VLLM_OPS_TABLE_OF(family, VLLM_OPS_TIER)

namespace vllm_ops {

// Order of the per-dtype kernel arrays.
enum DType : int { kF32 = 0, kBF16 = 1, kF16 = 2, kF64 = 3, kNumDTypes = 4 };

// Gated activations, x[..., 2d] -> [..., d].
enum GatedOp : int {
  kSiluAndMul,
  kMulAndSilu,
  kGeluAndMul,
  kGeluTanhAndMul,
  kFatreluAndMul,    // p0 = threshold
  kSiluAndMulClamp,  // p0 = limit
  kSwigluOAIAndMul,  // p0 = alpha, p1 = limit; interleaved
  kNumGatedOps
};

// Pointwise activations.
enum UnaryOp : int {
  kGelu,
  kGeluTanh,
  kGeluFast,
  kQuickGelu,
  kRelu2,
  kXielu,  // p0 = p, p1 = n, p2 = beta, p3 = eps
  kNumUnaryOps
};

// `d` columns of output per row, of which the columns [begin, end) are computed: elementwise
// results do not depend on how a row is split.
struct ElementwiseArgs {
  const void* x;
  int64_t x_stride;
  void* out;
  int64_t out_stride;
  int64_t rows;
  int64_t d;
  int64_t begin;
  int64_t end;
  double p0, p1, p2, p3;
};
using ElementwiseFn = void (*)(const ElementwiseArgs&);

// How a norm's weight is stored. Anything else is widened to the accumulation type beforehand.
enum WeightKind : int {
  kNoWeight = 0,
  kSameWeight = 1,  // the dtype of x
  kWideWeight = 2,  // the accumulation type: double for fp64, else float
  kNumWeightKinds = 3
};

struct RmsNormArgs {
  const void* x;
  int64_t x_stride;
  int64_t x_next;  // rms_norm only: from x to the rows that this thread reads after these, or 0
  const void* residual;  // fused_add only
  int64_t residual_stride;
  void* out;
  int64_t out_stride;
  void* sum;  // fused_add only: x + residual, rounded
  int64_t sum_stride;
  const void* weight;
  int64_t rows;
  int64_t cols;
  int64_t variance_size;
  double eps;
  double weight_offset;
  bool round_before_weight;
};
using RmsNormFn = void (*)(const RmsNormArgs&);

struct LayerNormArgs {
  const void* x;
  int64_t x_stride;
  void* out;
  int64_t out_stride;
  const void* weight;  // accumulation type, may be null
  const void* bias;    // accumulation type, may be null
  int64_t rows;
  int64_t cols;
  double eps;
};
using LayerNormFn = void (*)(const LayerNormArgs&);

struct GatedNormArgs {
  const void* x;
  int64_t x_stride;
  const void* gate;  // may be null
  int64_t gate_stride;
  void* out;
  int64_t out_stride;
  const void* weight;  // accumulation type, may be null
  int64_t rows;
  int64_t cols;
  int64_t group_size;
  double eps;
  bool norm_before_gate;
  void* scratch;  // group_size elements of the accumulation type, of the calling thread's own
};
using GatedNormFn = void (*)(const GatedNormArgs&);

// All heads of one token. cos and sin have rotary_dim / 2 elements of the accumulation type.
struct RotaryArgs {
  const void* x;
  int64_t x_stride;  // from head to head
  int64_t x_ahead;   // elements from x that this thread reads next
  void* out;         // may equal x
  int64_t out_stride;
  const void* cos;
  const void* sin;
  int64_t heads;
  int64_t head_size;
  int64_t rotary_dim;
};
using RotaryFn = void (*)(const RotaryArgs&);

// dst[i] = src[i] in the accumulation type of another dtype.
using WidenFn = void (*)(const void* src, void* dst, int64_t n);

// Output channels that a linear kernel computes in one call, at most.
constexpr int kLinearChannels = 32;

// One row of x, widened to fp32 and cut into chunks of `chunk` elements: chunk c of all rows starts
// at `to + c * chunk * rows`, rows one after the other, the last chunk filled up to a whole step.
struct LinearPackArgs {
  const void* x;
  int64_t x_step;  // from element to element
  int64_t k;
  int64_t chunk;  // a multiple of the table's step
  int64_t rows;
  int64_t row;
  float* to;
};
using LinearPackFn = void (*)(const LinearPackArgs&);

// out[rows, channels] = round(x[rows, k] weight[channels, k]^T * scale[channels] + bias[channels])
struct LinearArgs {
  const void* weight;
  int64_t weight_stride;  // from channel to channel
  int64_t weight_step;    // from element to element; other than 1 only with `wide`
  int64_t next;           // from `weight` to the weights that this thread reads next
  const float* x;         // packed
  int64_t rows;
  int64_t k;
  int64_t chunk;
  int64_t channels;
  const float* scale;  // of an int8 weight
  int64_t scale_stride;
  const void* bias;  // may be null
  int64_t bias_stride;
  void* out;
  int64_t out_stride;
  float* wide;  // channels * chunk elements for the widened weight; null: widened in registers
  void* sums;   // rows * kLinearChannels vectors
};
using LinearFn = void (*)(const LinearArgs&);

struct LinearTable {
  int step;          // k is padded to a multiple of this
  int vector_bytes;  // of the accumulators in LinearArgs::sums
  LinearPackFn pack[kNumDTypes];
  LinearFn linear[kNumDTypes];  // null for fp32 and fp64
  // With an int8 weight: x, bias and the result in this dtype. Null for fp64.
  LinearPackFn pack_int8[kNumDTypes];
  LinearFn linear_int8[kNumDTypes];
};

struct ActivationTable {
  ElementwiseFn gated[kNumGatedOps][kNumDTypes];
  ElementwiseFn unary[kNumUnaryOps][kNumDTypes];
};
struct RmsNormTable {
  RmsNormFn rms_norm[kNumWeightKinds][kNumDTypes];
  RmsNormFn fused_add_rms_norm[kNumWeightKinds][kNumDTypes];
};
struct NormTable {
  LayerNormFn layer_norm[kNumDTypes];
  GatedNormFn rms_norm_gated[2][kNumDTypes];  // [the gate has the accumulation type]
};
struct RotaryTable {
  RotaryFn rotary[2][kNumDTypes];  // [is_neox_style]
  WidenFn widen_to_float[kNumDTypes];
  WidenFn widen_to_double[kNumDTypes];
};

struct KernelTable {
  const char* name;
  // What an activation costs an element, with 1 for a load, an addition and a store of any tier
  // that has vectors of 32 bytes: it decides when a second thread pays.
  int activation_cost;
  const ActivationTable* activation;
  const RmsNormTable* rms_norm;
  const NormTable* norm;
  const RotaryTable* rotary;
  const LinearTable* linear;
};

}  // namespace vllm_ops
