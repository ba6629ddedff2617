// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../qk_norm_rope.h"
#include "norm.h"

namespace vllm_ops::gpu {

template <class Tuning, class T, Angles kSource>
void launch_rotary_from(const RotaryArgs& args, Stream stream) {
  const int width = args.vectors ? kChunk<T> : 1;
  const int pairs = args.neox || !args.vectors ? args.rotary_dim / 2 : args.rotary_dim;
  const int items = (pairs + (args.copy_rest ? args.head_size - args.rotary_dim : 0)) / width;
  const int heads = args.query.count + args.key.count;
  if (items == 0 || heads == 0) return;
  const int x = power_of_two(items, 32);
  // As few idle heads as possible: 40 heads are two times 20, not 32 and 8.
  const int at_most = Tuning::kRotaryThreads / x;
  const int y = int(ceil_div(heads, ceil_div(heads, at_most)));
  const int z = Tuning::kRotaryThreads / (x * y);
  const auto kernel =
      args.vectors ? rotary_kernel<T, kSource, true> : rotary_kernel<T, kSource, false>;
  in_launches(args.tokens, z, [&](int64_t first, unsigned blocks) {
    launch(kernel, dim3(blocks, unsigned(ceil_div(heads, y))), dim3(x, y, z), stream, args, first);
  });
}

template <class Tuning>
void launch_rotary(const RotaryArgs& args, Stream stream) {
  with_type(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    switch (args.source) {
      case Angles::kTable:
        return launch_rotary_from<Tuning, T, Angles::kTable>(args, stream);
      case Angles::kMultimodal:
        return launch_rotary_from<Tuning, T, Angles::kMultimodal>(args, stream);
      case Angles::kGiven:
        return launch_rotary_from<Tuning, T, Angles::kGiven>(args, stream);
    }
  });
}

// rms_norm over the heads of one side, for heads that the fused kernel doesn't take.
template <class Tuning>
void norm_heads(const QkNormRopeArgs& args, const Heads& heads, const Param& weight,
                Stream stream) {
  RmsNormArgs norm{};
  const RotaryArgs& rotary = args.rotary;
  norm.dtype = rotary.dtype;
  norm.vectors = rotary.vectors;
  norm.x = heads.x;
  norm.x_rows = heads.x_rows;
  norm.x_rows.size[norm.x_rows.dims] = heads.count;
  norm.x_rows.stride[norm.x_rows.dims++] = heads.x_pitch;
  norm.out = heads.out;
  norm.out_rows = {1, {}, {rotary.head_size}};
  norm.weight = weight;
  norm.rows = rotary.tokens * heads.count;
  norm.cols = norm.variance_size = rotary.head_size;
  norm.eps = args.eps;
  norm.weight_offset = args.weight_offset;
  norm.round_before_weight = args.round_before_weight;
  if (norm.rows > 0) launch_rms_norm<Tuning>(norm, stream);
}

// The outputs are contiguous and x_rows has a dimension to spare.
template <class Tuning>
void launch_qk_norm_rope(const QkNormRopeArgs& args, Stream stream) {
  const RotaryArgs& rotary = args.rotary;
  with_type(rotary.dtype, [&](auto tag) {
    using T = decltype(tag);
    const int chunks = int(ceil_div(rotary.head_size, kChunk<T>));
    const int threads = Tuning::threads_per_row(chunks);
    const int heads = rotary.query.count + rotary.key.count;
    if (threads > kSmallestWarp || chunks > threads * kQkChunks) {
      norm_heads<Tuning>(args, rotary.query, args.q_weight, stream);
      norm_heads<Tuning>(args, rotary.key, args.k_weight, stream);
      RotaryArgs in_place = rotary;
      Heads* const sides[] = {&in_place.query, &in_place.key};
      for (Heads* side : sides) {
        side->x = side->out;
        side->x_rows = side->out_rows;
        side->x_pitch = side->out_pitch;
      }
      in_place.copy_rest = false;
      return launch_rotary_from<Tuning, T, Angles::kTable>(in_place, stream);
    }
    const int y = kQkThreads / threads;
    const auto kernel =
        rotary.vectors ? qk_norm_rope_kernel<T, true> : qk_norm_rope_kernel<T, false>;
    in_launches(rotary.tokens, 1, [&](int64_t first, unsigned blocks) {
      const dim3 grid(blocks, unsigned(ceil_div(heads, y)));
      launch(kernel, grid, dim3(threads, y), stream, args, first);
    });
  });
}

}  // namespace vllm_ops::gpu
