// SPDX-License-Identifier: Apache-2.0
#include "heads.h"
#include "register.h"

namespace vllm_ops::binding {
namespace {

using OptionalTensor = std::optional<Tensor>;
using Pair = std::tuple<Tensor, OptionalTensor>;

// The arguments that the operators with positions and a table share.
struct Table {
  const Tensor& positions;
  int64_t first_place;  // 1 for the three rows of the multimodal positions
  int64_t head_size;
  const Tensor& cos_sin_cache;
  bool neox;
};

void check_table(const char* op, const Table& t, const Tensor& query, const OptionalTensor& key) {
  integral(op, "positions", t.positions);
  if (t.head_size < 1) fail(op, ": head_size must be above 0, got ", t.head_size);
  countable(op, "query", t.head_size);
  check_heads(op, "query", query, t.positions, t.first_place, t.head_size);
  if (key.has_value()) {
    check_heads(op, "key", *key, t.positions, t.first_place, t.head_size);
    same_dtype(op, "key", *key, query);
    same_device(op, "key", *key, "query", query);
  }
  const Tensor& table = t.cos_sin_cache;
  if (table.scalar_type() != ScalarType::Float) {
    fail(op, ": cos_sin_cache must be float32, got ", dtype_name(table.scalar_type()));
  }
  if (table.dim() != 2) {
    fail(op, ": cos_sin_cache must have 2 dimensions [max_position, rotary_dim], got ",
         table.dim());
  }
  if (table.size(0) < 1) fail(op, ": cos_sin_cache must have at least 1 row, got 0");
  const int64_t rotary_dim = table.size(1);
  if (rotary_dim % 2 != 0 || rotary_dim < 1 || rotary_dim > t.head_size) {
    fail(op, ": cos_sin_cache must have an even number of columns, at most head_size ", t.head_size,
         ", got ", rotary_dim);
  }
  same_device(op, "cos_sin_cache", table, "query", query);
  same_device(op, "positions", t.positions, "query", query);
}

// Holds what the kernels read besides query and key.
struct TableArgs {
  Tensor positions, table;
  gpu::RotaryArgs args{};

  TableArgs(const Call& call, const Table& t, const Tensor& query)
      : positions(torch::stable::contiguous(t.positions)),
        table(torch::stable::contiguous(t.cos_sin_cache)) {
    args.dtype = dtype_of(query);
    args.neox = t.neox;
    args.source = t.first_place > 0 ? gpu::Angles::kMultimodal : gpu::Angles::kTable;
    args.angles.table = static_cast<const float*>(call.read(table));
    args.angles.positions = call.read(positions);
    args.angles.wide_positions = positions.scalar_type() == ScalarType::Long;
    args.angles.max_position = table.size(0);
    args.tokens = product(positions, t.first_place, positions.dim());
    args.head_size = int(t.head_size);
    args.rotary_dim = int(table.size(1));
  }
};

bool vectors(const gpu::RotaryArgs& args) {
  const int64_t size = args.dtype == DType::kFloat32 ? 4 : 2;
  const int64_t turning = args.neox ? args.rotary_dim / 2 : args.rotary_dim;
  const int64_t rest = args.head_size - args.rotary_dim;
  bool all = aligned(turning, size) && aligned(rest, size) && aligned(args.head_size, size) &&
             aligned(args.angles.table) && args.rotary_dim % 8 == 0;
  for (const gpu::Heads* side : {&args.query, &args.key}) {
    if (side->count == 0) continue;
    all = all && aligned(side->x, side->x_rows, size) && aligned(side->x_pitch, size) &&
          aligned(side->out, side->out_rows, size) && aligned(side->out_pitch, size);
  }
  return all;
}

void launch(const Call& call, gpu::RotaryArgs& args) {
  args.vectors = vectors(args);
  gpu::rotary(args, call.stream());
  call.finish();
}

Pair turn(const char* op, const Table& t, const Tensor& query, const OptionalTensor& key,
          const std::vector<int64_t>& section = {}, bool interleaved = false) {
  Tensor query_out = new_like(query);
  OptionalTensor key_out;
  if (key.has_value()) key_out = new_like(*key);
  const Call call(op, query);
  TableArgs with(call, t, query);
  gpu::RotaryArgs& args = with.args;
  if (args.tokens == 0) return {query_out, key_out};
  const int64_t places = t.positions.dim() - t.first_place;
  const HeadsOf q(call, query, query_out, places, t.head_size);
  args.query = q.heads;
  std::optional<HeadsOf> k;
  if (key.has_value()) args.key = k.emplace(call, *key, *key_out, places, t.head_size).heads;
  args.copy_rest = true;
  for (size_t i = 0; i < section.size(); ++i) args.angles.section[i] = int(section[i]);
  args.angles.interleaved = interleaved;
  launch(call, args);
  return {query_out, key_out};
}

Pair rotary_embedding(const Tensor positions, const Tensor query, const OptionalTensor key,
                      int64_t head_size, const Tensor cos_sin_cache, bool is_neox_style) {
  const Table t{positions, 0, head_size, cos_sin_cache, is_neox_style};
  check_table("rotary_embedding", t, query, key);
  return turn("rotary_embedding", t, query, key);
}

Pair multimodal_rotary_embedding(const Tensor positions, const Tensor query,
                                 const OptionalTensor key, int64_t head_size,
                                 const Tensor cos_sin_cache,
                                 const std::vector<int64_t> mrope_section, bool mrope_interleaved,
                                 bool is_neox_style) {
  const char* op = "multimodal_rotary_embedding";
  integral(op, "positions", positions);
  if (positions.dim() < 1 || positions.size(0) != 3) {
    fail(op, ": positions must have 3 rows in the first dimension, got shape ",
         shape_text(positions));
  }
  const Table t{positions, 1, head_size, cos_sin_cache, is_neox_style};
  check_table(op, t, query, key);
  const int64_t pairs = cos_sin_cache.size(1) / 2;
  int64_t sum = 0;
  bool fits = mrope_section.size() == 3;
  for (int64_t size : mrope_section) {
    fits = fits && size >= 0 && size <= pairs;
    sum += fits ? size : 0;
  }
  if (!fits || sum != pairs) {
    fail(op, ": mrope_section must be three integers >= 0 whose sum is rotary_dim / 2, ", pairs,
         ", got ", list_text(mrope_section.data(), int64_t(mrope_section.size())));
  }
  return turn(op, t, query, key, mrope_section, mrope_interleaved);
}

void rotary_embedding_(const Tensor positions, const Tensor query, const OptionalTensor key,
                       int64_t head_size, const Tensor cos_sin_cache, bool is_neox_style) {
  const char* op = "rotary_embedding_";
  const Table t{positions, 0, head_size, cos_sin_cache, is_neox_style};
  check_table(op, t, query, key);
  writable(op, "query", query);
  if (key.has_value()) {
    writable(op, "key", *key);
    apart(op, "key", key, "query", query);
  }
  const auto others = [&](const char* name, const Tensor& written) {
    apart(op, "positions", positions, name, written);
    apart(op, "cos_sin_cache", cos_sin_cache, name, written);
  };
  others("query", query);
  if (key.has_value()) others("key", *key);
  const Call call(op, query);
  TableArgs with(call, t, query);
  gpu::RotaryArgs& args = with.args;
  if (args.tokens == 0) return;
  Target q(query, positions.dim());
  args.query = heads_in_place(call, q, positions.dim(), head_size);
  std::optional<Target> k;
  if (key.has_value()) {
    k.emplace(*key, positions.dim());
    args.key = heads_in_place(call, *k, positions.dim(), head_size);
  }
  launch(call, args);
  q.put_back();
  if (k.has_value()) k->put_back();
}

Tensor apply_rotary_emb(const Tensor x, const Tensor cos, const Tensor sin, bool is_neox_style) {
  const char* op = "apply_rotary_emb";
  floating(op, "x", x);
  rank_at_least(op, "x", x, 2);
  check_given(op, "cos", cos, x);
  check_given(op, "sin", sin, x);
  same_shape(op, "sin", sin, cos);
  check_given_shape(op, cos, x);
  Tensor out = new_like(x);
  if (out.numel() == 0) return out;
  const Call call(op, x);
  const int64_t places = x.dim() - 2, head_size = x.size(x.dim() - 1);
  countable(op, "x", head_size);
  if (product(x, 0, places) > INT32_MAX) {
    fail(op, ": x must have fewer than 2^31 places, got ", product(x, 0, places));
  }
  const HeadsOf heads(call, x, out, places, head_size);
  const Tensor c = torch::stable::contiguous(cos), s = torch::stable::contiguous(sin);
  gpu::RotaryArgs args{};
  args.dtype = dtype_of(x);
  args.neox = is_neox_style;
  args.copy_rest = true;
  args.query = heads.heads;
  args.source = gpu::Angles::kGiven;
  args.angles.cos = {call.read(c), dtype_of(c)};
  args.angles.sin = {call.read(s), dtype_of(s)};
  args.angles.cos_pitch = args.angles.sin_pitch = c.size(c.dim() - 1);
  args.angles.given_rows = product(c, 0, c.dim() - 1);
  args.tokens = product(x, 0, places);
  args.head_size = int(head_size);
  args.rotary_dim = int(2 * c.size(c.dim() - 1));
  launch(call, args);
  return out;
}

std::tuple<Tensor, Tensor> qk_norm_rope(const Tensor positions, const Tensor query,
                                        const Tensor key, int64_t head_size,
                                        const OptionalTensor q_weight,
                                        const OptionalTensor k_weight, double eps,
                                        const Tensor cos_sin_cache, bool is_neox_style,
                                        double weight_offset, bool round_before_weight) {
  const char* op = "qk_norm_rope";
  const Table t{positions, 0, head_size, cos_sin_cache, is_neox_style};
  check_table(op, t, query, key);
  vector(op, "q_weight", q_weight, head_size, "query", query);
  vector(op, "k_weight", k_weight, head_size, "query", query);
  not_negative(op, "eps", eps);
  Tensor query_out = new_like(query), key_out = new_like(key);
  const Call call(op, query);
  TableArgs with(call, t, query);
  if (with.args.tokens == 0) return {query_out, key_out};
  const Parameter q_scale(call, q_weight), k_scale(call, k_weight);
  const HeadsOf q(call, query, query_out, positions.dim(), head_size);
  const HeadsOf k(call, key, key_out, positions.dim(), head_size);
  gpu::QkNormRopeArgs args{};
  args.rotary = with.args;
  args.rotary.query = q.heads;
  args.rotary.key = k.heads;
  args.rotary.copy_rest = true;
  args.rotary.vectors = vectors(args.rotary) && aligned(q_scale.param(), args.rotary.dtype) &&
                        aligned(k_scale.param(), args.rotary.dtype);
  args.q_weight = q_scale.param();
  args.k_weight = k_scale.param();
  args.eps = float(eps);
  args.weight_offset = float(weight_offset);
  args.round_before_weight = round_before_weight;
  gpu::qk_norm_rope(args, call.stream());
  call.finish();
  return {query_out, key_out};
}

}  // namespace

void register_rotary(torch::stable::detail::StableLibrary& m) {
  VLLM_OPS_IMPL_OPTIONAL(m, rotary_embedding, 1, 2);
  VLLM_OPS_IMPL_OPTIONAL(m, multimodal_rotary_embedding, 1, 2);
  VLLM_OPS_IMPL(m, rotary_embedding_, 1);
  VLLM_OPS_IMPL(m, apply_rotary_emb, 0);
  VLLM_OPS_IMPL(m, qk_norm_rope, 1);
}

}  // namespace vllm_ops::binding
