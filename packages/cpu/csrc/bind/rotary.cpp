// SPDX-License-Identifier: Apache-2.0
// Bindings of rotary_embedding and its in-place form.
#include "rotary.h"

#include "register.h"

namespace vllm_ops {
namespace {

struct Arguments {
  Positions positions;
  int64_t head_size;
  Heads query, key;
  bool has_key;
  Table table;
  bool is_neox_style;

  Arguments(const char* op, Tensor positions_arg, Tensor query_arg, Tensor key_arg,
            int64_t head_size_arg, Tensor cache, bool is_neox_style_arg)
      : positions(op, std::move(positions_arg)),
        head_size((check_head_size(op, head_size_arg), head_size_arg)),
        query(check_heads(op, "query", std::move(query_arg), positions.meta().sizes,
                          positions.meta().dim, head_size)),
        has_key(key_arg),
        table(op, std::move(cache), head_size),
        is_neox_style(is_neox_style_arg) {
    if (has_key) {
      key = check_heads(op, "key", std::move(key_arg), positions.meta().sizes, positions.meta().dim,
                        head_size);
      check_same_dtype(op, "key", key.meta, query.meta);
    }
    positions.check_range(op, table.rows());
  }

  static Arguments from_stack(const char* op, StableIValue* stack, uint64_t num_args) {
    check_arity(op, num_args, 6);
    Tensor positions(stack[0]), query(stack[1]), key = optional_tensor(stack[2]), cache(stack[4]);
    return Arguments(op, std::move(positions), std::move(query), std::move(key),
                     to<int64_t>(stack[3]), std::move(cache), to<bool>(stack[5]));
  }

  // Nothing that is written shares memory with anything else.
  void check_in_place(const char* op) const {
    const auto place = [](const Tensor& t) { return extent(t, meta(t)); };
    const Extent q = place(query.argument());
    const Extent p = place(positions.argument()), t = place(table.argument());
    check_writable(op, "query", q);
    const auto apart = [&](const char* name, const Extent& written) {
      check_apart(op, "positions", p, name, written);
      check_apart(op, "cos_sin_cache", t, name, written);
    };
    apart("query", q);
    if (!has_key) return;
    const Extent k = place(key.argument());
    check_writable(op, "key", k);
    check_apart(op, "key", k, "query", q);
    apart("key", k);
  }

  int dtype() const { return dtype_index(query.meta.dtype); }
  Turn turn() const { return Turn(is_neox_style, dtype(), head_size, table.rotary_dim()); }
  TableAngles angles() const { return TableAngles(table, positions, dtype()); }
};

void boxed_rotary_embedding(StableIValue* stack, uint64_t num_args, uint64_t) {
  const Arguments a = Arguments::from_stack("rotary_embedding", stack, num_args);
  const Meta& p = a.positions.meta();
  TurnedPair out =
      turn_new(a.turn(), p.sizes, p.dim, a.query, a.has_key ? &a.key : nullptr, a.angles());
  stack[0] = out.query.release();
  stack[1] = out.key.release_optional();
}

void boxed_rotary_embedding_(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "rotary_embedding_";
  const Arguments a = Arguments::from_stack(op, stack, num_args);
  a.check_in_place(op);
  const Meta& p = a.positions.meta();
  const Side query = side_in_place(a.query);
  const Side key = a.has_key ? side_in_place(a.key) : Side();
  turn_tokens(a.turn(), p.sizes, p.dim, query, a.has_key ? &key : nullptr, a.angles());
  write_back(a.query);
  if (a.has_key) write_back(a.key);
}

}  // namespace

void register_rotary(Library& m) {
  m.impl("rotary_embedding", &boxed_rotary_embedding);
  m.impl("rotary_embedding_", &boxed_rotary_embedding_);
}

}  // namespace vllm_ops
