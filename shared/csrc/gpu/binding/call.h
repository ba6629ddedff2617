// SPDX-License-Identifier: Apache-2.0
// From checked tensors to the kernels' arguments: the device and stream of a call, rows, alignment.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <vector>

#include "../../binding/checks.h"
#include "../launch.h"

#if defined(VLLM_OPS_SIMT)
#include "simt.h"
#elif defined(VLLM_OPS_SYCL)
#include "queue.h"  // of packages/xpu
#else
// ROCm builds of torch have it under the same name. Builds without a GPU don't have it, and the
// library must load there too.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t, void**) __attribute__((weak));
#endif

#define VLLM_OPS_STRING_(x) #x
#define VLLM_OPS_STRING(x) VLLM_OPS_STRING_(x)
// vllm_ops.cuda, for messages.
#define VLLM_OPS_MODULE "vllm_ops." VLLM_OPS_STRING(VLLM_OPS_PACKAGE)

namespace vllm_ops::binding {

using gpu::DType;
using gpu::Param;
using gpu::Rows;

inline DType dtype_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    default:
      return DType::kFloat64;
  }
}

inline int64_t item_size(const Tensor& t) {
  switch (t.scalar_type()) {
    case ScalarType::Half:
    case ScalarType::BFloat16:
      return 2;
    case ScalarType::Float:
    case ScalarType::Int:
      return 4;
    default:
      return 8;
  }
}

// The device of `x` and its current stream, for the time of one operator.
class Call {
 public:
  Call(const char* op, const Tensor& x) : op_(op) {
#if defined(VLLM_OPS_SIMT)
    (void)x;
    simt::release();
#elif defined(VLLM_OPS_SYCL)
    stream_ = xpu::queue_of(op, x, guard_);
#else
    if (!x.is_cuda()) {
      fail(op, ": ", VLLM_OPS_MODULE, " runs on cuda tensors only, got ", device_name(x));
    }
    if (aoti_torch_get_current_cuda_stream == nullptr) {
      fail(op, ": ", VLLM_OPS_MODULE, " needs a build of torch with GPU support");
    }
    guard_.emplace(x.get_device_index());
    STABLE_TORCH_ERROR_CODE_CHECK(
        aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream_));
#endif
  }
  ~Call() {
#if defined(VLLM_OPS_SIMT)
    simt::release();
#endif
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void* stream() const { return stream_; }

  const void* read(const Tensor& t) const {
    allow(t, false);
    return t.const_data_ptr();
  }
  void* write(const Tensor& t) const {
    allow(t, true);
    return t.mutable_data_ptr();
  }

  // After the launches.
  void finish() const {
    const char* error = gpu::launch_error();
    if (error != nullptr) {
      fail(op_, ": ", VLLM_OPS_MODULE, " could not launch on ", gpu::architecture(), ": ", error);
    }
  }

 private:
  static void allow(const Tensor& t, bool writable) {
#if defined(VLLM_OPS_SIMT)
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    if (t.numel() > 0) simt::allow(t.const_data_ptr(), (last + 1) * item_size(t), writable);
#else
    (void)t;
    (void)writable;
#endif
  }

  const char* op_;
  void* stream_ = nullptr;
#if !defined(VLLM_OPS_SIMT)
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
#endif
};

// ---- rows ----

inline int64_t product(const Tensor& t, int64_t begin, int64_t end) {
  int64_t n = 1;
  for (int64_t d = begin; d < end; ++d) n *= t.size(d);
  return n;
}

// Collapses dimensions [0, lead). False where more than `max_dims` remain.
inline bool collapse(const Tensor& t, int64_t lead, int max_dims, Rows& rows) {
  rows = {1, {1}, {0}};
  int64_t sizes[Rows::kMaxDims], strides[Rows::kMaxDims];
  int dims = 0;  // innermost first
  for (int64_t d = lead - 1; d >= 0; --d) {
    const int64_t size = t.size(d), stride = t.stride(d);
    if (size == 1) continue;
    if (dims > 0 && stride == strides[dims - 1] * sizes[dims - 1]) {
      sizes[dims - 1] *= size;
    } else if (dims == max_dims) {
      return false;
    } else {
      sizes[dims] = size;
      strides[dims++] = stride;
    }
  }
  for (int d = 0; d < dims; ++d) {
    rows.size[d] = sizes[dims - 1 - d];
    rows.stride[d] = strides[dims - 1 - d];
  }
  rows.dims = dims > 0 ? dims : 1;
  // The kernels divide 32-bit row numbers where there is more than one dimension.
  return dims < 2 || product(t, 0, lead) <= INT32_MAX;
}

inline bool unit_last(const Tensor& t) {
  return t.dim() == 0 || t.size(-1) <= 1 || t.stride(t.dim() - 1) == 1;
}

inline Rows one_stride(int64_t stride) { return {1, {1}, {stride}}; }

// A tensor whose leading dimensions the kernels can walk: itself, or a contiguous copy.
struct Walked {
  Tensor tensor;
  Rows rows;
};
inline Walked walk(const Tensor& t, int64_t lead, int max_dims = Rows::kMaxDims) {
  Walked walked{t, {}};
  if (!unit_last(t) || !collapse(t, lead, max_dims, walked.rows)) {
    walked.tensor = torch::stable::contiguous(t);
    collapse(walked.tensor, lead, max_dims, walked.rows);
  }
  return walked;
}
inline Walked walk(const Tensor& t) { return walk(t, t.dim() - 1); }

// A tensor that is written, whatever its strides: where the kernels can't walk it, they work on a
// copy that `put_back` writes back; always where it must be computed `aside`.
class Target {
 public:
  Target(const Tensor& t, int64_t lead, bool aside = false) : given_(t) {
    if (aside) {
      Tensor copy = torch::stable::new_empty(t, t.sizes());
      torch::stable::copy_(copy, t);
      walked_ = walk(copy, lead);
    } else {
      walked_ = walk(t, lead);
    }
  }
  const Tensor& tensor() const { return walked_.tensor; }
  const Rows& rows() const { return walked_.rows; }
  void put_back() {
    if (walked_.tensor.const_data_ptr() != given_.const_data_ptr()) {
      torch::stable::copy_(given_, walked_.tensor);
    }
  }

 private:
  Tensor given_;
  Walked walked_;
};

// ---- 16-byte vectors ----

inline bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
inline bool aligned(int64_t elements, int64_t size) { return elements * size % 16 == 0; }
inline bool aligned(const void* p, const Rows& rows, int64_t size) {
  bool all = aligned(p);
  for (int d = 0; d < rows.dims; ++d) all = all && aligned(rows.stride[d], size);
  return all;
}
// A parameter is read in vectors only where it is of x's dtype or fp32.
inline bool aligned(const Param& param, DType x) {
  return param.data == nullptr ||
         (aligned(param.data) && (param.dtype == x || param.dtype == DType::kFloat32));
}

// A one-dimensional parameter, contiguous.
inline Tensor contiguous_vector(const Tensor& t) {
  return t.numel() <= 1 || t.stride(0) == 1 ? t : torch::stable::contiguous(t);
}

// Keeps the tensor behind a Param alive.
class Parameter {
 public:
  Parameter(const Call& call, const std::optional<Tensor>& value) {
    if (!value.has_value()) return;
    tensor_ = value->dim() == 1 ? contiguous_vector(*value) : torch::stable::contiguous(*value);
    param_ = {call.read(*tensor_), dtype_of(*tensor_)};
  }
  const Param& param() const { return param_; }

 private:
  std::optional<Tensor> tensor_;
  Param param_{nullptr, DType::kFloat32};
};

// Columns are counted in 32 bits, rows and offsets in 64.
inline void countable(const char* op, const char* name, int64_t columns) {
  if (columns > INT32_MAX - 1024) {
    fail(op, ": ", name, " must have fewer than 2^31 - 1024 columns, got ", columns);
  }
}

inline Tensor new_like(const Tensor& x) { return torch::stable::new_empty(x, x.sizes()); }

}  // namespace vllm_ops::binding
