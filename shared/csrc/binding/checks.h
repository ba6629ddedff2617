// SPDX-License-Identifier: Apache-2.0
// The checks of the operators' arguments in C++, with the messages of ops/_checks.py: operator,
// argument, allowed, given. Torch's stable ABI only, no device: any C++ backend may use it.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/DeviceType.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "overlap.h"

namespace vllm_ops::binding {

using Tensor = torch::stable::Tensor;
using ScalarType = torch::headeronly::ScalarType;

// RuntimeError in Python. STD_TORCH_CHECK would put the function and the file before the message.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::runtime_error(text.str());
}

inline std::string dtype_name(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return "float32";
    case ScalarType::Half:
      return "float16";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Double:
      return "float64";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    case ScalarType::Short:
      return "int16";
    case ScalarType::Char:
      return "int8";
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Bool:
      return "bool";
    case ScalarType::UInt16:
      return "uint16";
    case ScalarType::UInt32:
      return "uint32";
    case ScalarType::UInt64:
      return "uint64";
    case ScalarType::ComplexHalf:
      return "complex32";
    case ScalarType::ComplexFloat:
      return "complex64";
    case ScalarType::ComplexDouble:
      return "complex128";
    case ScalarType::Float8_e4m3fn:
      return "float8_e4m3fn";
    case ScalarType::Float8_e4m3fnuz:
      return "float8_e4m3fnuz";
    case ScalarType::Float8_e5m2:
      return "float8_e5m2";
    case ScalarType::Float8_e5m2fnuz:
      return "float8_e5m2fnuz";
    case ScalarType::Float8_e8m0fnu:
      return "float8_e8m0fnu";
    case ScalarType::Float4_e2m1fn_x2:
      return "float4_e2m1fn_x2";
    default:
      return "dtype " + std::to_string(int(dtype));
  }
}

// As Python prints a float.
inline std::string number(double value) {
  char text[40];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  const bool plain = std::strpbrk(text, ".en") == nullptr;
  return plain ? std::string(text) + ".0" : text;
}

inline std::string device_name(const Tensor& t) {
  const auto type = t.device().type();
  if (type == torch::headeronly::DeviceType::CPU) return "cpu";
  const std::string index = std::to_string(int(t.get_device_index()));
  if (type == torch::headeronly::DeviceType::CUDA) return "cuda:" + index;
  if (type == torch::headeronly::DeviceType::XPU) return "xpu:" + index;
  return "device type " + std::to_string(int(type)) + ":" + index;
}

inline std::string list_text(const int64_t* values, int64_t count) {
  std::string text = "[";
  for (int64_t i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}
inline std::string shape_text(const Tensor& t) { return list_text(t.sizes().data(), t.dim()); }

inline bool is_floating(const Tensor& t) {
  const ScalarType dtype = t.scalar_type();
  return dtype == ScalarType::Float || dtype == ScalarType::Half || dtype == ScalarType::BFloat16 ||
         dtype == ScalarType::Double;
}

inline void floating(const char* op, const char* name, const Tensor& t) {
  if (!is_floating(t)) {
    fail(op, ": ", name, " must be floating point (float32, bfloat16, float16 or float64), got ",
         dtype_name(t.scalar_type()));
  }
}

inline void integral(const char* op, const char* name, const Tensor& t) {
  if (t.scalar_type() != ScalarType::Int && t.scalar_type() != ScalarType::Long) {
    fail(op, ": ", name, " must be int32 or int64, got ", dtype_name(t.scalar_type()));
  }
}

inline void rank_at_least(const char* op, const char* name, const Tensor& t, int64_t rank) {
  if (t.dim() < rank) {
    fail(op, ": ", name, " must have at least ", rank, rank > 1 ? " dimensions" : " dimension",
         ", got ", t.dim());
  }
}

inline void activation_input(const char* op, const Tensor& x) {
  floating(op, "x", x);
  rank_at_least(op, "x", x, 1);
}

inline void same_device(const char* op, const char* name, const Tensor& t, const char* of,
                        const Tensor& other) {
  if (t.device() != other.device()) {
    fail(op, ": ", name, " must be on the device of ", of, ", ", device_name(other), ", got ",
         device_name(t));
  }
}

inline bool equal_shapes(const Tensor& a, const Tensor& b) {
  if (a.dim() != b.dim()) return false;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != b.size(d)) return false;
  }
  return true;
}

inline void same_shape(const char* op, const char* name, const Tensor& t, const Tensor& other) {
  if (!equal_shapes(t, other)) {
    fail(op, ": ", name, " must have shape ", shape_text(other), ", got ", shape_text(t));
  }
}

inline void same_dtype(const char* op, const char* name, const Tensor& t, const Tensor& other) {
  if (t.scalar_type() != other.scalar_type()) {
    fail(op, ": ", name, " must be ", dtype_name(other.scalar_type()), ", got ",
         dtype_name(t.scalar_type()));
  }
}

// An optional 1-D parameter such as a weight; its dtype may differ from the input's.
inline void vector(const char* op, const char* name, const std::optional<Tensor>& value,
                   int64_t elements, const char* of, const Tensor& other) {
  if (!value.has_value()) return;
  floating(op, name, *value);
  if (value->dim() != 1 || value->size(0) != elements) {
    fail(op, ": ", name, " must have ", elements, " elements, got ",
         value->dim() == 1 ? std::to_string(value->size(0)) : "shape " + shape_text(*value));
  }
  same_device(op, name, *value, of, other);
}

// Written so that a NaN fails.
inline void not_negative(const char* op, const char* name, double value) {
  if (!(value >= 0)) fail(op, ": ", name, " must not be negative, got ", number(value));
}

inline void above_zero(const char* op, const char* name, double value) {
  if (!(value > 0)) fail(op, ": ", name, " must be above 0, got ", number(value));
}

inline Extent extent(const Tensor& t) {
  return {t.const_data_ptr(), int64_t(t.element_size()), t.sizes().data(), t.strides().data(),
          t.dim()};
}

// A tensor that is written in place: no two of its elements share memory.
inline void writable(const char* op, const char* name, const Tensor& t) {
  if (!overlaps_itself(extent(t))) return;
  fail(op, ": ", name, " must not overlap itself, as it is written in place, got shape ",
       shape_text(t), " and strides ", list_text(t.strides().data(), t.dim()));
}

// A tensor that shares no memory with `written`, the argument `of`.
inline void apart(const char* op, const char* name, const std::optional<Tensor>& t, const char* of,
                  const Tensor& written) {
  if (t.has_value() && overlap(extent(*t), extent(written))) {
    fail(op, ": ", name, " must not overlap ", of, ", which is written in place");
  }
}

}  // namespace vllm_ops::binding
