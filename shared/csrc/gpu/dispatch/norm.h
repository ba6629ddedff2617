// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../layer_norm.h"
#include "../rms_norm_gated.h"
#include "common.h"

namespace vllm_ops::gpu {

struct RowShape {
  int threads;  // of a row
  int block;
  bool keep;  // a thread's chunks fit its registers
};

// Of the row's length alone, so that a row's sum never depends on how many rows there are.
template <class Tuning>
RowShape row_shape(int cols, int chunk) {
  const int chunks = int(ceil_div(cols, chunk));
  const int threads = Tuning::threads_per_row(chunks);
  return {threads, threads > Tuning::kNormBlock ? threads : Tuning::kNormBlock,
          chunks <= threads * kKept};
}

template <class Args>
void launch_rows(void (*kernel)(Args, int, int64_t), const RowShape& shape, const Args& args,
                 Stream stream) {
  in_launches(args.rows, shape.block / shape.threads, [&](int64_t first, unsigned blocks) {
    launch(kernel, dim3(blocks), dim3(shape.block), stream, args, shape.threads, first);
  });
}

template <class Tuning, class T, bool kAdd>
void launch_rms_norm_of(const RmsNormArgs& args, Stream stream) {
  const RowShape shape = row_shape<Tuning>(args.cols, kChunk<T>);
  const auto kernel = !args.vectors ? rms_norm_kernel<T, kAdd, false, false>
                      : shape.keep  ? rms_norm_kernel<T, kAdd, true, true>
                                    : rms_norm_kernel<T, kAdd, true, false>;
  launch_rows(kernel, shape, args, stream);
}

template <class Tuning>
void launch_rms_norm(const RmsNormArgs& args, Stream stream) {
  with_type(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (args.residual != nullptr) {
      launch_rms_norm_of<Tuning, T, true>(args, stream);
    } else {
      launch_rms_norm_of<Tuning, T, false>(args, stream);
    }
  });
}

template <class Tuning>
void launch_layer_norm(const LayerNormArgs& args, Stream stream) {
  with_type(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RowShape shape = row_shape<Tuning>(args.cols, kChunk<T>);
    const auto kernel = !args.vectors ? layer_norm_kernel<T, false, false>
                        : shape.keep  ? layer_norm_kernel<T, true, true>
                                      : layer_norm_kernel<T, true, false>;
    launch_rows(kernel, shape, args, stream);
  });
}

template <class Tuning>
void launch_rms_norm_gated(const GatedNormArgs& args, Stream stream) {
  with_type(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const RowShape shape = row_shape<Tuning>(args.cols, kChunk<T>);
    const auto kernel =
        args.vectors ? rms_norm_gated_kernel<T, true> : rms_norm_gated_kernel<T, false>;
    in_launches(args.rows, shape.block / shape.threads, [&](int64_t first, unsigned blocks) {
      for (int part = 0; part < args.groups; part += kMaxGridY) {
        const int parts = args.groups - part < kMaxGridY ? args.groups - part : kMaxGridY;
        launch(kernel, dim3(blocks, parts), dim3(shape.block), stream, args, shape.threads, first,
               part);
      }
    });
  });
}

}  // namespace vllm_ops::gpu
