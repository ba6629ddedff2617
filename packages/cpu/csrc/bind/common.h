// SPDX-License-Identifier: Apache-2.0
// What every binding needs: owned tensor handles, metadata read once, checks, outputs.
//
// The kernels are registered as raw boxed functions on the C shim rather than through TORCH_BOX,
// which wraps each tensor in a shared_ptr and copies the handle of each result: a call of a
// one-token operator costs a few microseconds in all, so 0.3 us for that is worth saving.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "../isa.h"
#include "../overlap.h"

namespace vllm_ops {

// Throws `op: what`, which torch turns into a RuntimeError. STD_TORCH_CHECK would put the function
// and the source path in front.
template <class... Args>
[[noreturn, gnu::noinline, gnu::cold]] void fail(const char* op, const Args&... args) {
  std::ostringstream message;
  message << op << ": ";
  (message << ... << args);
  throw std::runtime_error(message.str());
}

#define VLLM_OPS_CHECK(condition, ...)                        \
  do {                                                        \
    if (__builtin_expect(!(condition), 0)) fail(__VA_ARGS__); \
  } while (0)

inline void shim(AOTITorchError code, const char* call) {
  if (__builtin_expect(code != AOTI_TORCH_SUCCESS, 0)) {
    throw std::runtime_error(std::string("torch call failed: ") + call);
  }
}
#define VLLM_OPS_SHIM(call) ::vllm_ops::shim((call), #call)

inline const KernelTable& kernels() {
  if (__builtin_expect(active_kernels == nullptr, 0)) throw std::runtime_error(isa_error);
  return *active_kernels;
}

// An owned tensor, or nothing.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  explicit Tensor(StableIValue value)
      : handle_(torch::stable::detail::to<AtenTensorHandle>(value)) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  AtenTensorHandle get() const { return handle_; }
  StableIValue release() { return torch::stable::detail::from(std::exchange(handle_, nullptr)); }
  // The result of an optional return.
  StableIValue release_optional() {
    std::optional<AtenTensorHandle> value;
    if (handle_ != nullptr) value = std::exchange(handle_, nullptr);
    return torch::stable::detail::from(value);
  }

 private:
  AtenTensorHandle handle_ = nullptr;
};

inline Tensor optional_tensor(StableIValue value) {
  const auto handle = torch::stable::detail::to<std::optional<AtenTensorHandle>>(value);
  return handle.has_value() ? Tensor(*handle) : Tensor();
}

using torch::stable::detail::to;

// Metadata of a tensor, borrowed from it.
struct Meta {
  int32_t dtype = 0;
  int64_t dim = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;

  int64_t last() const { return sizes[dim - 1]; }
  bool unit_last_stride() const { return strides[dim - 1] == 1 || sizes[dim - 1] <= 1; }
};

Meta meta(const Tensor& tensor);
int64_t numel(const Meta& m);
bool same_shape(const Meta& a, const Meta& b);

std::string shape_string(const int64_t* sizes, int64_t dim);
inline std::string shape_string(const Meta& m) { return shape_string(m.sizes, m.dim); }
// "float32", as torch prints a dtype without its prefix.
std::string dtype_name(int32_t dtype);

// The kernels' index of a floating dtype, -1 for any other dtype.
int dtype_index(int32_t dtype);
bool is_int32(int32_t dtype);
bool is_int64(int32_t dtype);

// Metadata of any tensor on the CPU; `of` is the argument that brought the call here.
Meta check_cpu(const char* op, const char* name, const char* of, const Tensor& tensor);
// Metadata of a floating tensor on the CPU, with at least one dimension.
Meta check_any_floating(const char* op, const char* name, const char* of, const Tensor& tensor);
Meta check_floating(const char* op, const char* name, const char* of, const Tensor& tensor);
inline Meta check_floating(const char* op, const char* name, const Tensor& tensor) {
  return check_floating(op, name, "x", tensor);
}

// As Python prints a float.
std::string number(double value);

const void* data(const Tensor& tensor);
// Where the tensor lies.
inline Extent extent(const Tensor& tensor, const Meta& m) {
  return {data(tensor), int64_t(aoti_torch_dtype_element_size(m.dtype)), m.sizes, m.strides, m.dim};
}

// A tensor that is written in place: no two of its elements share memory.
void check_writable(const char* op, const char* name, const Extent& t);
// `t` shares no memory with `written`, the argument `of`.
inline void check_apart(const char* op, const char* name, const Extent& t, const char* of,
                        const Extent& written) {
  VLLM_OPS_CHECK(!overlap(t, written), op, name, " must not overlap ", of,
                 ", which is written in place");
}

void* mutable_data(const Tensor& tensor);

// A new contiguous tensor of this shape and dtype on the CPU.
Tensor empty(const int64_t* sizes, int64_t dim, int32_t dtype);
Tensor contiguous(const Tensor& tensor);
void copy_(const Tensor& to, const Tensor& from);

// `tensor` itself if its last dimension has unit stride, else a contiguous copy. `m` follows.
void require_unit_stride(Tensor& tensor, Meta& m);

// Boxed functions get all their inputs on the stack and own them.
inline void check_arity(const char* op, uint64_t got, uint64_t expected) {
  VLLM_OPS_CHECK(got == expected, op, "the schema must have ", expected, " arguments, got ", got);
}

}  // namespace vllm_ops
