// SPDX-License-Identifier: Apache-2.0
// Bindings of multimodal_rotary_embedding, apply_rotary_emb and qk_norm_rope.
#include <vector>

#include "register.h"
#include "rotary.h"

namespace vllm_ops {
namespace {

// ---- multimodal_rotary_embedding ----

// Which row of positions each pair takes its angle from.
std::vector<uint8_t> section_of_pairs(const char* op, const std::vector<int64_t>& section,
                                      bool interleaved, int64_t pairs) {
  int64_t left = pairs;
  bool fits = section.size() == 3;
  for (const int64_t size : section) {
    fits = fits && size >= 0 && size <= left;
    left -= fits ? size : 0;
  }
  VLLM_OPS_CHECK(fits && left == 0, op,
                 "mrope_section must be three integers >= 0 whose sum is rotary_dim / 2, ", pairs,
                 ", got ", shape_string(section.data(), int64_t(section.size())));
  std::vector<uint8_t> row(pairs, 0);
  for (int64_t i = 0; i < pairs; ++i) {
    if (interleaved) {
      if (i % 3 == 1 && i < 3 * section[1]) row[i] = 1;
      if (i % 3 == 2 && i < 3 * section[2]) row[i] = 2;
    } else {
      row[i] = i < section[0] ? 0 : i < section[0] + section[1] ? 1 : 2;
    }
  }
  return row;
}

void boxed_multimodal(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "multimodal_rotary_embedding";
  check_arity(op, num_args, 8);
  Tensor positions_arg(stack[0]), query_arg(stack[1]), key_arg = optional_tensor(stack[2]);
  const auto head_size = to<int64_t>(stack[3]);
  Tensor cache(stack[4]);
  const auto section = to<std::vector<int64_t>>(stack[5]);
  const auto interleaved = to<bool>(stack[6]), is_neox_style = to<bool>(stack[7]);

  const Positions positions(op, std::move(positions_arg));
  const Meta& p = positions.meta();
  VLLM_OPS_CHECK(p.dim >= 1 && p.sizes[0] == 3, op,
                 "positions must have 3 rows in the first dimension, got shape ", shape_string(p));
  check_head_size(op, head_size);
  const int64_t* places = p.sizes + 1;
  const int64_t dim = p.dim - 1, tokens = positions.count() / 3;
  const bool has_key = static_cast<bool>(key_arg);
  const Heads query = check_heads(op, "query", std::move(query_arg), places, dim, head_size);
  Heads key;
  if (has_key) {
    key = check_heads(op, "key", std::move(key_arg), places, dim, head_size);
    check_same_dtype(op, "key", key.meta, query.meta);
  }
  const Table table(op, std::move(cache), head_size);
  const int64_t half = table.rotary_dim() / 2;
  const std::vector<uint8_t> row_of = section_of_pairs(op, section, interleaved, half);
  positions.check_range(op, table.rows());

  const int dtype = dtype_index(query.meta.dtype);
  const Turn turn(is_neox_style, dtype, head_size, table.rotary_dim());
  const auto gather = [&](int64_t token, auto* buffer, const void*& cos, const void*& sin) {
    const float* rows[3];
    for (int r = 0; r < 3; ++r) rows[r] = table.row(positions[r * tokens + token]);
    for (int64_t i = 0; i < half; ++i) {
      buffer[i] = rows[row_of[i]][i];
      buffer[half + i] = rows[row_of[i]][half + i];
    }
    cos = buffer;
    sin = buffer + half;
  };
  TurnedPair out = turn_new(turn, places, dim, query, has_key ? &key : nullptr,
                            [&](int64_t token, double* buffer, const void*& cos, const void*& sin) {
                              if (dtype == kF64) {
                                gather(token, buffer, cos, sin);
                              } else {
                                gather(token, reinterpret_cast<float*>(buffer), cos, sin);
                              }
                            });
  stack[0] = out.query.release();
  stack[1] = out.key.release_optional();
}

// ---- apply_rotary_emb ----

// cos or sin of apply_rotary_emb, P' + [rotary_dim / 2] in any floating dtype.
struct Angles {
  Tensor tensor;
  Meta meta;
  int dtype;
  const void* data;
};

Angles check_angles(const char* op, const char* name, Tensor tensor) {
  Angles a;
  a.meta = check_floating(op, name, "x", tensor);
  a.tensor = std::move(tensor);
  a.dtype = dtype_index(a.meta.dtype);
  a.tensor = a.meta.unit_last_stride() ? std::move(a.tensor) : contiguous(a.tensor);
  a.meta = meta(a.tensor);
  a.data = data(a.tensor);
  return a;
}

// cos is P + [n] or [last of P] + [n], where x is P + [heads, size].
[[noreturn, gnu::cold]] void refuse_angles(const char* op, const Meta& cos, const Meta& x) {
  const int64_t places = x.dim - 2;
  const std::string all = "[" + leading(x.sizes, places) + "n]";
  const std::string last =
      "[" + leading(x.sizes + std::max<int64_t>(0, places - 1), std::min<int64_t>(1, places)) +
      "n]";
  fail(op, "cos must have shape ", all, all == last ? "" : " or " + last,
       " with 0 < 2 * n <= ", x.last(), ", got ", shape_string(cos));
}

// Strides of the angles over P; 0 where P' leaves a dimension of P out.
void broadcast_strides(const Meta& angles, int64_t dim, int64_t* strides) {
  const int64_t own = angles.dim - 1;
  for (int64_t i = 0; i < dim; ++i) {
    strides[i] = i < dim - own ? 0 : angles.strides[i - (dim - own)];
  }
}

void boxed_apply(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "apply_rotary_emb";
  check_arity(op, num_args, 4);
  Tensor x_arg(stack[0]), cos_arg(stack[1]), sin_arg(stack[2]);
  const auto is_neox_style = to<bool>(stack[3]);

  Meta m = check_any_floating(op, "x", "x", x_arg);
  VLLM_OPS_CHECK(m.dim >= 2, op, "x must have at least 2 dimensions, got ", m.dim);
  require_unit_stride(x_arg, m);
  const Angles cos = check_angles(op, "cos", std::move(cos_arg));
  const Angles sin = check_angles(op, "sin", std::move(sin_arg));
  const int64_t dim = m.dim - 2, head_size = m.last(), half = cos.meta.last();
  VLLM_OPS_CHECK(same_shape(cos.meta, sin.meta), op, "sin must have shape ", shape_string(cos.meta),
                 ", got ", shape_string(sin.meta));
  const int64_t own = cos.meta.dim - 1;
  const bool fits = (own == dim || (own == 1 && dim > 1)) && half > 0 && 2 * half <= head_size &&
                    std::equal(cos.meta.sizes, cos.meta.sizes + own, m.sizes + dim - own);
  if (__builtin_expect(!fits, 0)) refuse_angles(op, cos.meta, m);

  Tensor out = empty(m.sizes, m.dim, m.dtype);
  const Meta out_meta = meta(out);
  const int dtype = dtype_index(m.dtype), wide = wide_dtype(dtype);
  const Turn turn(is_neox_style, dtype, head_size, 2 * half);
  int64_t cos_strides[64], sin_strides[64];
  broadcast_strides(cos.meta, dim, cos_strides);
  broadcast_strides(sin.meta, dim, sin_strides);
  Side side;
  side.x = data(x_arg);
  side.out = mutable_data(out);
  side.heads = m.sizes[dim];
  side.x_stride = m.strides[dim];
  side.out_stride = head_size;
  const RowGrid<4> grid(m.sizes, dim, {m.strides, out_meta.strides, cos_strides, sin_strides});
  const int64_t* strides = grid.inner_strides();
  if (side.heads * head_size > 0) {
    parallel_rows(grid.rows(), side.heads * head_size, [&](int64_t begin, int64_t end) {
      const bool widened = cos.dtype != wide || sin.dtype != wide;
      const std::unique_ptr<double[]> buffer(widened ? new double[2 * half] : nullptr);
      grid.for_runs(begin, end, [&](int64_t, const int64_t* offset, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          const void* c = at(cos.data, offset[2] + i * strides[2], cos.dtype);
          const void* s = at(sin.data, offset[3] + i * strides[3], sin.dtype);
          if (widened) {
            widen(c, cos.dtype, buffer.get(), wide, half);
            widen(s, sin.dtype, buffer.get() + half, wide, half);
            c = buffer.get();
            s = buffer.get() + half;
          }
          turn_side(
              turn, side,
              {offset[0] + i * strides[0], strides[0], offset[1] + i * strides[1], count - 1 - i},
              c, s);
        }
      });
    });
  }
  stack[0] = out.release();
}

// ---- qk_norm_rope ----

void boxed_qk_norm_rope(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "qk_norm_rope";
  check_arity(op, num_args, 11);
  Tensor positions_arg(stack[0]), query_arg(stack[1]), key_arg(stack[2]);
  const auto head_size = to<int64_t>(stack[3]);
  const Tensor q_weight_arg = optional_tensor(stack[4]), k_weight_arg = optional_tensor(stack[5]);
  const auto eps = to<double>(stack[6]);
  Tensor cache(stack[7]);
  const auto is_neox_style = to<bool>(stack[8]);
  const auto weight_offset = to<double>(stack[9]);
  const auto round_before_weight = to<bool>(stack[10]);

  const Positions positions(op, std::move(positions_arg));
  const Meta& p = positions.meta();
  check_head_size(op, head_size);
  const Heads query = check_heads(op, "query", std::move(query_arg), p.sizes, p.dim, head_size);
  const Heads key = check_heads(op, "key", std::move(key_arg), p.sizes, p.dim, head_size);
  check_same_dtype(op, "key", key.meta, query.meta);
  const Table table(op, std::move(cache), head_size);
  check_eps(op, eps);
  // A head as the norm sees it.
  const Meta head = {query.meta.dtype, 1, &head_size, nullptr};
  const Weight q_weight(op, q_weight_arg, head, "q_weight");
  const Weight k_weight(op, k_weight_arg, head, "k_weight");
  positions.check_range(op, table.rows());

  const int dtype = dtype_index(query.meta.dtype);
  const Turn turn(is_neox_style, dtype, head_size, table.rotary_dim());
  const auto norm = [&](const Weight& weight) {
    HeadNorm n{};
    n.fn = kernels().rms_norm->rms_norm[weight.kind()][dtype];
    n.args.weight = weight.data();
    n.args.cols = n.args.variance_size = head_size;
    n.args.eps = eps;
    n.args.weight_offset = weight_offset;
    n.args.round_before_weight = round_before_weight;
    return n;
  };
  const HeadNorm q_norm = norm(q_weight), k_norm = norm(k_weight);
  TurnedPair out = turn_new(turn, p.sizes, p.dim, query, &key, TableAngles(table, positions, dtype),
                            &q_norm, &k_norm);
  stack[0] = out.query.release();
  stack[1] = out.key.release();
}

}  // namespace

void register_rotary_variants(Library& m) {
  m.impl("multimodal_rotary_embedding", &boxed_multimodal);
  m.impl("apply_rotary_emb", &boxed_apply);
  m.impl("qk_norm_rope", &boxed_qk_norm_rope);
}

}  // namespace vllm_ops
