// SPDX-License-Identifier: Apache-2.0
#include "common.h"

#include <torch/headeronly/core/ScalarType.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vllm_ops {
namespace {

struct DTypeCodes {
  int32_t f32 = aoti_torch_dtype_float32();
  int32_t bf16 = aoti_torch_dtype_bfloat16();
  int32_t f16 = aoti_torch_dtype_float16();
  int32_t f64 = aoti_torch_dtype_float64();
  int32_t i32 = aoti_torch_dtype_int32();
  int32_t i64 = aoti_torch_dtype_int64();
  int32_t cpu = aoti_torch_device_type_cpu();
};
const DTypeCodes codes;

std::string device_name(const Tensor& tensor, int32_t type) {
  const std::pair<int32_t, const char*> names[] = {
      {aoti_torch_device_type_cuda(), "cuda"},
      {aoti_torch_device_type_meta(), "meta"},
      {aoti_torch_device_type_xpu(), "xpu"},
      {aoti_torch_device_type_mps(), "mps"},
  };
  std::string result = "device type " + std::to_string(type);
  for (const auto& [code, name] : names) {
    if (code == type) result = name;
  }
  int32_t index = -1;
  VLLM_OPS_SHIM(aoti_torch_get_device_index(tensor.get(), &index));
  return index < 0 ? result : result + ":" + std::to_string(index);
}

}  // namespace

Meta meta(const Tensor& tensor) {
  Meta m;
  int64_t *sizes = nullptr, *strides = nullptr;
  VLLM_OPS_SHIM(aoti_torch_get_dtype(tensor.get(), &m.dtype));
  VLLM_OPS_SHIM(aoti_torch_get_dim(tensor.get(), &m.dim));
  VLLM_OPS_SHIM(aoti_torch_get_sizes(tensor.get(), &sizes));
  VLLM_OPS_SHIM(aoti_torch_get_strides(tensor.get(), &strides));
  m.sizes = sizes;
  m.strides = strides;
  return m;
}

int64_t numel(const Meta& m) {
  int64_t n = 1;
  for (int64_t i = 0; i < m.dim; ++i) n *= m.sizes[i];
  return n;
}

bool same_shape(const Meta& a, const Meta& b) {
  if (a.dim != b.dim) return false;
  for (int64_t i = 0; i < a.dim; ++i) {
    if (a.sizes[i] != b.sizes[i]) return false;
  }
  return true;
}

std::string shape_string(const int64_t* sizes, int64_t dim) {
  std::string s = "[";
  for (int64_t i = 0; i < dim; ++i) s += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return s + "]";
}

std::string dtype_name(int32_t dtype) {
  const std::pair<int32_t, const char*> names[] = {
      {codes.f32, "float32"},
      {codes.bf16, "bfloat16"},
      {codes.f16, "float16"},
      {codes.f64, "float64"},
      {codes.i32, "int32"},
      {codes.i64, "int64"},
      {aoti_torch_dtype_bool(), "bool"},
      {aoti_torch_dtype_uint8(), "uint8"},
      {aoti_torch_dtype_int8(), "int8"},
      {aoti_torch_dtype_int16(), "int16"},
      {aoti_torch_dtype_uint16(), "uint16"},
      {aoti_torch_dtype_uint32(), "uint32"},
      {aoti_torch_dtype_uint64(), "uint64"},
      {aoti_torch_dtype_complex32(), "complex32"},
      {aoti_torch_dtype_complex64(), "complex64"},
      {aoti_torch_dtype_complex128(), "complex128"},
      {aoti_torch_dtype_float8_e4m3fn(), "float8_e4m3fn"},
      {aoti_torch_dtype_float8_e4m3fnuz(), "float8_e4m3fnuz"},
      {aoti_torch_dtype_float8_e5m2(), "float8_e5m2"},
      {aoti_torch_dtype_float8_e5m2fnuz(), "float8_e5m2fnuz"},
      {int32_t(torch::headeronly::ScalarType::Float8_e8m0fnu), "float8_e8m0fnu"},
      {int32_t(torch::headeronly::ScalarType::Float4_e2m1fn_x2), "float4_e2m1fn_x2"},
  };
  for (const auto& [code, name] : names) {
    if (code == dtype) return name;
  }
  return "dtype number " + std::to_string(dtype);
}

int dtype_index(int32_t dtype) {
  if (dtype == codes.f32) return kF32;
  if (dtype == codes.bf16) return kBF16;
  if (dtype == codes.f16) return kF16;
  if (dtype == codes.f64) return kF64;
  return -1;
}
bool is_int32(int32_t dtype) { return dtype == codes.i32; }
bool is_int64(int32_t dtype) { return dtype == codes.i64; }

Meta check_cpu(const char* op, const char* name, const char* of, const Tensor& tensor) {
  int32_t device = 0;
  VLLM_OPS_SHIM(aoti_torch_get_device_type(tensor.get(), &device));
  VLLM_OPS_CHECK(device == codes.cpu, op, name, " must be on the device of ", of, ", cpu, got ",
                 device_name(tensor, device));
  return meta(tensor);
}

Meta check_any_floating(const char* op, const char* name, const char* of, const Tensor& tensor) {
  const Meta m = check_cpu(op, name, of, tensor);
  VLLM_OPS_CHECK(dtype_index(m.dtype) >= 0, op, name,
                 " must be floating point (float32, bfloat16, float16 or float64), got ",
                 dtype_name(m.dtype));
  return m;
}

Meta check_floating(const char* op, const char* name, const char* of, const Tensor& tensor) {
  const Meta m = check_any_floating(op, name, of, tensor);
  VLLM_OPS_CHECK(m.dim >= 1, op, name, " must have at least 1 dimension, got 0");
  return m;
}

void check_writable(const char* op, const char* name, const Extent& t) {
  if (__builtin_expect(!overlaps_itself(t), 1)) return;
  fail(op, name, " must not overlap itself, as it is written in place, got shape ",
       shape_string(t.sizes, t.dim), " and strides ", shape_string(t.strides, t.dim));
}

std::string number(double value) {
  char text[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  const bool plain = std::strpbrk(text, ".en") == nullptr;
  return plain ? std::string(text) + ".0" : text;
}

const void* data(const Tensor& tensor) {
  const void* p = nullptr;
  VLLM_OPS_SHIM(torch_get_const_data_ptr(tensor.get(), &p));
  return p;
}

void* mutable_data(const Tensor& tensor) {
  void* p = nullptr;
  VLLM_OPS_SHIM(torch_get_mutable_data_ptr(tensor.get(), &p));
  return p;
}

Tensor empty(const int64_t* sizes, int64_t dim, int32_t dtype) {
  int64_t strides[64];  // the most dimensions that a tensor can have
  int64_t stride = 1;
  for (int64_t i = dim - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  AtenTensorHandle out = nullptr;
  VLLM_OPS_SHIM(aoti_torch_empty_strided(dim, sizes, strides, dtype, codes.cpu, 0, &out));
  return Tensor(out);
}

Tensor contiguous(const Tensor& tensor) {
  const Meta m = meta(tensor);
  Tensor copy = empty(m.sizes, m.dim, m.dtype);
  copy_(copy, tensor);
  return copy;
}

void copy_(const Tensor& to, const Tensor& from) {
  AtenTensorHandle a = nullptr, b = nullptr;
  VLLM_OPS_SHIM(aoti_torch_new_tensor_handle(to.get(), &a));
  VLLM_OPS_SHIM(aoti_torch_new_tensor_handle(from.get(), &b));
  StableIValue stack[3] = {torch::stable::detail::from(a), torch::stable::detail::from(b),
                           torch::stable::detail::from(false)};
  VLLM_OPS_SHIM(torch_call_dispatcher("aten::copy_", "", stack, TORCH_ABI_VERSION));
  Tensor returned(stack[0]);
}

void require_unit_stride(Tensor& tensor, Meta& m) {
  if (m.unit_last_stride()) return;
  tensor = contiguous(tensor);
  m = meta(tensor);
}

}  // namespace vllm_ops
