// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../activation.h"
#include "common.h"

namespace vllm_ops::gpu {

// A block is as wide as a row has chunks, up to `threads`; what is left over becomes rows.
template <class Args>
void launch_elementwise(void (*kernel)(Args), int width, int threads, const Args& args,
                        Stream stream) {
  const int64_t chunks = args.cols / width;
  const int x = power_of_two(chunks, threads), y = threads / x;
  const dim3 grid(capped(ceil_div(args.rows, y)), capped_y(ceil_div(chunks, x)));
  launch(kernel, grid, dim3(x, y), stream, args);
}

template <class Tuning, class T, Gated kOp>
void launch_gated_op(const GatedArgs& args, Stream stream) {
  constexpr int kThreads = Tuning::kElementwiseThreads;
  if (args.vectors) {
    launch_elementwise(gated_kernel<T, kOp, true>, kChunk<T>, kThreads, args, stream);
  } else {
    launch_elementwise(gated_kernel<T, kOp, false>, 1, kThreads, args, stream);
  }
}

template <class Tuning>
void launch_gated(const GatedArgs& args, Stream stream) {
  with_type(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    switch (args.op) {
      case Gated::kSiluAndMul:
        return launch_gated_op<Tuning, T, Gated::kSiluAndMul>(args, stream);
      case Gated::kMulAndSilu:
        return launch_gated_op<Tuning, T, Gated::kMulAndSilu>(args, stream);
      case Gated::kGeluAndMul:
        return launch_gated_op<Tuning, T, Gated::kGeluAndMul>(args, stream);
      case Gated::kGeluTanhAndMul:
        return launch_gated_op<Tuning, T, Gated::kGeluTanhAndMul>(args, stream);
      case Gated::kFatreluAndMul:
        return launch_gated_op<Tuning, T, Gated::kFatreluAndMul>(args, stream);
      case Gated::kSiluAndMulClamp:
        return launch_gated_op<Tuning, T, Gated::kSiluAndMulClamp>(args, stream);
      case Gated::kSwigluOAIAndMul:
        return launch_gated_op<Tuning, T, Gated::kSwigluOAIAndMul>(args, stream);
    }
  });
}

template <class Tuning, class T, Unary kOp>
void launch_unary_op(const UnaryArgs& args, Stream stream) {
  constexpr int kThreads = Tuning::kElementwiseThreads;
  if (args.vectors) {
    launch_elementwise(unary_kernel<T, kOp, true>, kChunk<T>, kThreads, args, stream);
  } else {
    launch_elementwise(unary_kernel<T, kOp, false>, 1, kThreads, args, stream);
  }
}

template <class Tuning>
void launch_unary(const UnaryArgs& args, Stream stream) {
  with_type(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    switch (args.op) {
      case Unary::kGelu:
        return launch_unary_op<Tuning, T, Unary::kGelu>(args, stream);
      case Unary::kGeluTanh:
        return launch_unary_op<Tuning, T, Unary::kGeluTanh>(args, stream);
      case Unary::kGeluFast:
        return launch_unary_op<Tuning, T, Unary::kGeluFast>(args, stream);
      case Unary::kQuickGelu:
        return launch_unary_op<Tuning, T, Unary::kQuickGelu>(args, stream);
      case Unary::kRelu2:
        return launch_unary_op<Tuning, T, Unary::kRelu2>(args, stream);
      case Unary::kXielu:
        return launch_unary_op<Tuning, T, Unary::kXielu>(args, stream);
    }
  });
}

}  // namespace vllm_ops::gpu
