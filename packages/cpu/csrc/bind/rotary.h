// SPDX-License-Identifier: Apache-2.0
// What the rotary operators share: checks, and the walk over tokens.
#pragma once

#include <memory>

#include "common.h"
#include "rows.h"
#include "weights.h"

namespace vllm_ops {

// A tensor of shape P + [num_heads * head_size] or P + [num_heads, head_size], read where it lies.
struct Heads {
  Tensor tensor;    // what the kernels read
  Tensor original;  // the argument, if `tensor` is a contiguous copy of it
  Meta meta;
  int64_t count = 0;   // heads per token
  int64_t stride = 0;  // from head to head

  const Tensor& argument() const { return original ? original : tensor; }
};

// Throws unless `tensor` has one of the two shapes, where P is the `dim` sizes at `places`.
Heads check_heads(const char* op, const char* name, Tensor tensor, const int64_t* places,
                  int64_t dim, int64_t head_size);
void check_head_size(const char* op, int64_t head_size);
// The first sizes of a shape as text, each with a comma behind it.
std::string leading(const int64_t* sizes, int64_t dim);
void check_same_dtype(const char* op, const char* name, const Meta& m, const Meta& other);

// cos_sin_cache: float32 [max_position, rotary_dim].
class Table {
 public:
  Table(const char* op, Tensor cache, int64_t head_size);
  int64_t rows() const { return meta_.sizes[0]; }
  int64_t rotary_dim() const { return meta_.sizes[1]; }
  const float* row(int64_t position) const { return data_ + position * meta_.strides[0]; }
  const Tensor& argument() const { return original_ ? original_ : tensor_; }

 private:
  Tensor tensor_, original_;  // the second only where the first is a copy
  Meta meta_;
  const float* data_;
};

// int32 or int64, any strides, every value inside the table.
class Positions {
 public:
  Positions(const char* op, Tensor positions);
  void check_range(const char* op, int64_t table_rows) const;

  const Meta& meta() const { return meta_; }
  int64_t count() const { return count_; }
  const Tensor& argument() const { return original_ ? original_ : tensor_; }
  int64_t operator[](int64_t i) const {
    return is_int64_ ? static_cast<const int64_t*>(data_)[i]
                     : static_cast<const int32_t*>(data_)[i];
  }

 private:
  Tensor tensor_, original_;  // the second only where the first is a copy
  Meta meta_;
  const void* data_;
  int64_t count_;
  bool is_int64_;
};

// The norm of qk_norm_rope: each head is normalised on its way to the output and then turned there.
struct HeadNorm {
  RmsNormFn fn = nullptr;
  RmsNormArgs args{};
};

// One side of a rotation, query or key: where to read, where to write.
struct Side {
  const void* x = nullptr;
  void* out = nullptr;
  int64_t heads = 0;
  int64_t x_stride = 0;
  int64_t out_stride = 0;
  const int64_t* x_token_strides = nullptr;
  const int64_t* out_token_strides = nullptr;
  const HeadNorm* norm = nullptr;
};

Side side_of(const Heads& x, const Tensor& out, const Meta& out_meta, int64_t head_size);
// out is x itself; write_back copies it to the argument where the kernels worked on a copy.
Side side_in_place(const Heads& x);
void write_back(const Heads& x);

struct Turn {
  Turn(bool is_neox_style, int dtype, int64_t head_size, int64_t rotary_dim)
      : fn(kernels().rotary->rotary[is_neox_style][dtype]),
        dtype(dtype),
        head_size(head_size),
        rotary_dim(rotary_dim) {}
  RotaryFn fn;
  int dtype;
  int64_t head_size;
  int64_t rotary_dim;
};

// The heads of one token; `tokens` more follow it, x_stride apart.
struct Place {
  int64_t x_offset, x_stride, out_offset, tokens;
};
void turn_side(const Turn& turn, const Side& side, const Place& place, const void* cos,
               const void* sin);

// Turns both sides (key may be null) of every token. `angles(token, buffer, cos, sin)` points cos
// and sin to rotary_dim / 2 numbers of the accumulation type; buffer has room for both.
template <class Angles>
void turn_tokens(const Turn& turn, const int64_t* places, int64_t dim, const Side& query,
                 const Side* key, const Angles& angles) {
  const Side& other = key != nullptr ? *key : query;
  const RowGrid<4> grid(places, dim,
                        {query.x_token_strides, query.out_token_strides, other.x_token_strides,
                         other.out_token_strides});
  const int64_t* strides = grid.inner_strides();
  const int64_t cols = (query.heads + (key != nullptr ? key->heads : 0)) * turn.head_size;
  if (cols == 0) return;
  parallel_rows(grid.rows(), cols, [&](int64_t begin, int64_t end) {
    double stack_buffer[256];
    std::unique_ptr<double[]> heap_buffer;
    double* buffer = stack_buffer;
    if (turn.rotary_dim > 256) {
      heap_buffer.reset(new double[turn.rotary_dim]);
      buffer = heap_buffer.get();
    }
    grid.for_runs(begin, end, [&](int64_t token, const int64_t* offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const void *cos = nullptr, *sin = nullptr;
        angles(token + i, buffer, cos, sin);
        turn_side(
            turn, query,
            {offset[0] + i * strides[0], strides[0], offset[1] + i * strides[1], count - 1 - i},
            cos, sin);
        if (key != nullptr) {
          turn_side(
              turn, *key,
              {offset[2] + i * strides[2], strides[2], offset[3] + i * strides[3], count - 1 - i},
              cos, sin);
        }
      }
    });
  });
}

struct TurnedPair {
  Tensor query, key;
};

// turn_tokens into new tensors of the inputs' shapes; key may be null.
template <class Angles>
TurnedPair turn_new(const Turn& turn, const int64_t* places, int64_t dim, const Heads& query,
                    const Heads* key, const Angles& angles, const HeadNorm* query_norm = nullptr,
                    const HeadNorm* key_norm = nullptr) {
  TurnedPair out;
  out.query = empty(query.meta.sizes, query.meta.dim, query.meta.dtype);
  const Meta query_meta = meta(out.query);
  Side query_side = side_of(query, out.query, query_meta, turn.head_size);
  query_side.norm = query_norm;
  if (key == nullptr) {
    turn_tokens(turn, places, dim, query_side, nullptr, angles);
    return out;
  }
  out.key = empty(key->meta.sizes, key->meta.dim, key->meta.dtype);
  const Meta key_meta = meta(out.key);
  Side key_side = side_of(*key, out.key, key_meta, turn.head_size);
  key_side.norm = key_norm;
  turn_tokens(turn, places, dim, query_side, &key_side, angles);
  return out;
}

// The angles of one row of positions: a row of the table, widened for fp64.
class TableAngles {
 public:
  TableAngles(const Table& table, const Positions& positions, int dtype)
      : table_(table), positions_(positions), wide_(dtype == kF64) {}
  void operator()(int64_t token, double* buffer, const void*& cos, const void*& sin) const {
    const int64_t half = table_.rotary_dim() / 2;
    const float* row = table_.row(positions_[token]);
    cos = row;
    sin = row + half;
    if (wide_) {
      widen(row, kF32, buffer, kF64, 2 * half);
      cos = buffer;
      sin = buffer + half;
    }
  }

 private:
  const Table& table_;
  const Positions& positions_;
  bool wide_;
};

}  // namespace vllm_ops
