// SPDX-License-Identifier: Apache-2.0
#include "rotary.h"

namespace vllm_ops {
namespace {

bool is_contiguous(const Meta& m) {
  int64_t expected = 1;
  for (int64_t i = m.dim - 1; i >= 0; --i) {
    if (m.sizes[i] == 1) continue;
    if (m.strides[i] != expected) return false;
    expected *= m.sizes[i];
  }
  return true;
}

}  // namespace

std::string leading(const int64_t* sizes, int64_t dim) {
  std::string s;
  for (int64_t i = 0; i < dim; ++i) s += std::to_string(sizes[i]) + ", ";
  return s;
}

void check_head_size(const char* op, int64_t head_size) {
  VLLM_OPS_CHECK(head_size >= 1, op, "head_size must be above 0, got ", head_size);
}

void check_same_dtype(const char* op, const char* name, const Meta& m, const Meta& other) {
  VLLM_OPS_CHECK(m.dtype == other.dtype, op, name, " must be ", dtype_name(other.dtype), ", got ",
                 dtype_name(m.dtype));
}

Heads check_heads(const char* op, const char* name, Tensor tensor, const int64_t* places,
                  int64_t dim, int64_t head_size) {
  Heads h;
  h.meta = check_any_floating(op, name, "query", tensor);
  const Meta& m = h.meta;
  bool fits = m.dim > dim && std::equal(places, places + dim, m.sizes);
  const bool flat = m.dim == dim + 1;
  if (fits) {
    fits = flat ? m.last() % head_size == 0 : m.dim == dim + 2 && m.last() == head_size;
  }
  if (__builtin_expect(!fits, 0)) {
    const std::string lead = leading(places, dim);
    fail(op, name, " must have shape [", lead, "num_heads * ", head_size, "] or [", lead,
         "num_heads, ", head_size, "], got ", shape_string(m));
  }
  h.tensor = std::move(tensor);
  if (!m.unit_last_stride()) {
    h.original = std::move(h.tensor);
    h.tensor = contiguous(h.original);
    h.meta = meta(h.tensor);
  }
  h.count = flat ? m.last() / head_size : m.sizes[dim];
  h.stride = flat ? head_size : m.strides[dim];
  return h;
}

Table::Table(const char* op, Tensor cache, int64_t head_size) {
  meta_ = check_cpu(op, "cos_sin_cache", "query", cache);
  VLLM_OPS_CHECK(dtype_index(meta_.dtype) == kF32, op, "cos_sin_cache must be float32, got ",
                 dtype_name(meta_.dtype));
  VLLM_OPS_CHECK(meta_.dim == 2, op,
                 "cos_sin_cache must have 2 dimensions [max_position, rotary_dim], got ",
                 meta_.dim);
  VLLM_OPS_CHECK(meta_.sizes[0] >= 1, op, "cos_sin_cache must have at least 1 row, got 0");
  const int64_t columns = meta_.sizes[1];
  VLLM_OPS_CHECK(columns % 2 == 0 && columns > 0 && columns <= head_size, op,
                 "cos_sin_cache must have an even number of columns, at most head_size ", head_size,
                 ", got ", columns);
  tensor_ = std::move(cache);
  if (!meta_.unit_last_stride()) {
    original_ = std::move(tensor_);
    tensor_ = contiguous(original_);
    meta_ = meta(tensor_);
  }
  data_ = static_cast<const float*>(data(tensor_));
}

Positions::Positions(const char* op, Tensor positions) {
  meta_ = check_cpu(op, "positions", "query", positions);
  is_int64_ = is_int64(meta_.dtype);
  VLLM_OPS_CHECK(is_int64_ || is_int32(meta_.dtype), op, "positions must be int32 or int64, got ",
                 dtype_name(meta_.dtype));
  tensor_ = std::move(positions);
  if (!is_contiguous(meta_)) {
    original_ = std::move(tensor_);
    tensor_ = contiguous(original_);
    meta_ = vllm_ops::meta(tensor_);
  }
  data_ = data(tensor_);
  count_ = numel(meta_);
}

void Positions::check_range(const char* op, int64_t table_rows) const {
  if (count_ == 0) return;
  int64_t low = (*this)[0], high = low;
  for (int64_t i = 1; i < count_; ++i) {
    low = std::min(low, (*this)[i]);
    high = std::max(high, (*this)[i]);
  }
  VLLM_OPS_CHECK(low >= 0, op, "positions must not be negative, got ", low);
  VLLM_OPS_CHECK(high < table_rows, op, "positions must be below ", table_rows,
                 ", the length of the table, got ", high,
                 "; ask get_rope for max_length=", high + 1, " or more");
}

Side side_of(const Heads& x, const Tensor& out, const Meta& out_meta, int64_t head_size) {
  Side s;
  s.x = data(x.tensor);
  s.out = mutable_data(out);
  s.heads = x.count;
  s.x_stride = x.stride;
  s.out_stride = head_size;
  s.x_token_strides = x.meta.strides;
  s.out_token_strides = out_meta.strides;
  return s;
}

Side side_in_place(const Heads& x) {
  Side s;
  s.x = s.out = mutable_data(x.tensor);
  s.heads = x.count;
  s.x_stride = s.out_stride = x.stride;
  s.x_token_strides = s.out_token_strides = x.meta.strides;
  return s;
}

void write_back(const Heads& x) {
  if (x.original) copy_(x.original, x.tensor);
}

void turn_side(const Turn& turn, const Side& side, const Place& place, const void* cos,
               const void* sin) {
  RotaryArgs args;
  args.x = at(side.x, place.x_offset, turn.dtype);
  args.x_stride = side.x_stride;
  args.x_ahead = side.heads * side.x_stride + place.tokens * place.x_stride;
  args.out = at(side.out, place.out_offset, turn.dtype);
  args.out_stride = side.out_stride;
  args.cos = cos;
  args.sin = sin;
  args.heads = side.heads;
  args.head_size = turn.head_size;
  args.rotary_dim = turn.rotary_dim;
  if (side.norm != nullptr) {
    RmsNormArgs norm = side.norm->args;
    norm.x = args.x;
    norm.x_stride = args.x_stride;
    norm.out = args.out;
    norm.out_stride = args.out_stride;
    norm.rows = args.heads;
    side.norm->fn(norm);
    args.x = args.out;
    args.x_stride = args.out_stride;
    args.x_ahead = 0;  // the norm has just written it
  }
  turn.fn(args);
}

}  // namespace vllm_ops
