// SPDX-License-Identifier: Apache-2.0
// Query and key of the rotary operators: P + [heads * size] or P + [heads, size].
#pragma once

#include "call.h"

namespace vllm_ops::binding {

// `positions` without its first `skip` dimensions is P.
inline void check_heads(const char* op, const char* name, const Tensor& x, const Tensor& positions,
                        int64_t skip, int64_t head_size) {
  floating(op, name, x);
  const int64_t places = positions.dim() - skip;
  const bool flat = x.dim() == places + 1 && x.size(places) % head_size == 0;
  bool fits = flat || (x.dim() == places + 2 && x.size(places + 1) == head_size);
  std::string lead;
  for (int64_t d = 0; d < places; ++d) {
    fits = fits && x.size(d) == positions.size(skip + d);
    lead += std::to_string(positions.size(skip + d)) + ", ";
  }
  if (!fits) {
    fail(op, ": ", name, " must have shape [", lead, "num_heads * ", head_size, "] or [", lead,
         "num_heads, ", head_size, "], got ", shape_text(x));
  }
}

inline void check_given(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  floating(op, name, t);
  rank_at_least(op, name, t, 1);
  same_device(op, name, t, "x", x);
}

// cos is P + [n] or [last of P] + [n], where x is P + [heads, size].
inline void check_given_shape(const char* op, const Tensor& cos, const Tensor& x) {
  const int64_t places = x.dim() - 2, lead = cos.dim() - 1;
  const int64_t last = places > 0 ? 1 : 0;
  const int64_t n = cos.size(lead), size = x.size(x.dim() - 1);
  bool fits = (lead == places || lead == last) && n > 0 && 2 * n <= size;
  for (int64_t d = 0; d < lead && fits; ++d) fits = cos.size(d) == x.size(places - lead + d);
  if (fits) return;
  std::string full, short_;
  for (int64_t d = 0; d < places; ++d) full += std::to_string(x.size(d)) + ", ";
  if (last > 0) short_ = std::to_string(x.size(places - 1)) + ", ";
  std::string shapes = "[" + full + "n]";
  if (full != short_) shapes += " or [" + short_ + "n]";
  fail(op, ": cos must have shape ", shapes, " with 0 < 2 * n <= ", size, ", got ",
       shape_text(cos));
}

constexpr int64_t kMaxHeads = 32767;

inline int head_count(const Tensor& x, int64_t places, int64_t head_size) {
  const int64_t count = x.dim() == places + 1 ? x.size(places) / head_size : x.size(places);
  // Query and key together fit the second dimension of a grid, one head a block at the least.
  if (count > kMaxHeads) fail("rotary: at most ", kMaxHeads, " heads, got ", count);
  return int(count);
}
inline int64_t head_pitch(const Tensor& x, int64_t places, int64_t head_size) {
  return x.dim() == places + 1 ? head_size : x.stride(places);
}

// One dimension is kept free for the heads, which the unfused norm walks as rows.
constexpr int kPlaceDims = Rows::kMaxDims - 1;

// From x into a new contiguous tensor.
struct HeadsOf {
  Walked in;
  gpu::Heads heads{};

  HeadsOf(const Call& call, const Tensor& x, const Tensor& out, int64_t places, int64_t head_size)
      : in(walk(x, places, kPlaceDims)) {
    heads.x = call.read(in.tensor);
    heads.x_rows = in.rows;
    heads.x_pitch = head_pitch(in.tensor, places, head_size);
    heads.out = call.write(out);
    heads.count = head_count(x, places, head_size);
    heads.out_rows = one_stride(heads.count * head_size);
    heads.out_pitch = head_size;
  }
};

inline gpu::Heads heads_in_place(const Call& call, const Target& target, int64_t places,
                                 int64_t head_size) {
  gpu::Heads heads{};
  heads.x = heads.out = call.write(target.tensor());
  heads.x_rows = heads.out_rows = target.rows();
  heads.x_pitch = heads.out_pitch = head_pitch(target.tensor(), places, head_size);
  heads.count = head_count(target.tensor(), places, head_size);
  return heads;
}

}  // namespace vllm_ops::binding
