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
  Turn turn;

  Arguments(const char* op, Tensor positions_arg, Tensor query_arg, Tensor key_arg,
            int64_t head_size_arg, Tensor cache, bool is_neox_style)
      : positions(op, std::move(positions_arg)),
        head_size((check_head_size(op, head_size_arg), head_size_arg)),
        query(check_heads(op, "query", std::move(query_arg), positions.meta().sizes,
                          positions.meta().dim, head_size)),
        has_key(key_arg),
        table(op, std::move(cache), head_size) {
    if (has_key) {
      key = check_heads(op, "key", std::move(key_arg), positions.meta().sizes, positions.meta().dim,
                        head_size);
      check_same_dtype(op, "key", key.meta, query.meta);
    }
    positions.check_range(op, table.rows());
    const int dtype = dtype_index(query.meta.dtype);
    turn = {kernels().rotary->rotary[is_neox_style][dtype], dtype, head_size, table.rotary_dim()};
  }

  static Arguments from_stack(const char* op, StableIValue* stack, uint64_t num_args) {
    check_arity(op, num_args, 6);
    Tensor positions(stack[0]), query(stack[1]), key = optional_tensor(stack[2]), cache(stack[4]);
    return Arguments(op, std::move(positions), std::move(query), std::move(key),
                     to<int64_t>(stack[3]), std::move(cache), to<bool>(stack[5]));
  }

  void run(const Side& query_side, const Side* key_side) const {
    const int64_t half = turn.rotary_dim / 2;
    const Meta& p = positions.meta();
    if (turn.dtype == kF64) {
      turn_tokens(turn, p.sizes, p.dim, query_side, key_side,
                  [&](int64_t token, double* buffer, const void*& cos, const void*& sin) {
                    widen(table.row(positions[token]), kF32, buffer, kF64, 2 * half);
                    cos = buffer;
                    sin = buffer + half;
                  });
    } else {
      turn_tokens(turn, p.sizes, p.dim, query_side, key_side,
                  [&](int64_t token, double*, const void*& cos, const void*& sin) {
                    const float* row = table.row(positions[token]);
                    cos = row;
                    sin = row + half;
                  });
    }
  }
};

void boxed_rotary_embedding(StableIValue* stack, uint64_t num_args, uint64_t) {
  const Arguments a = Arguments::from_stack("rotary_embedding", stack, num_args);
  const Meta& qm = a.query.meta;
  Tensor query_out = empty(qm.sizes, qm.dim, qm.dtype), key_out;
  const Meta query_out_meta = meta(query_out);
  const Side query_side = side_of(a.query, query_out, query_out_meta, a.head_size);
  if (a.has_key) {
    key_out = empty(a.key.meta.sizes, a.key.meta.dim, a.key.meta.dtype);
    const Meta key_out_meta = meta(key_out);
    const Side key_side = side_of(a.key, key_out, key_out_meta, a.head_size);
    a.run(query_side, &key_side);
  } else {
    a.run(query_side, nullptr);
  }
  stack[0] = query_out.release();
  stack[1] = key_out.release_optional();
}

void boxed_rotary_embedding_(StableIValue* stack, uint64_t num_args, uint64_t) {
  constexpr auto op = "rotary_embedding_";
  const Arguments a = Arguments::from_stack(op, stack, num_args);
  check_writable(op, "query", a.query.meta);
  if (a.has_key) check_writable(op, "key", a.key.meta);
  const Side query_side = side_in_place(a.query);
  if (a.has_key) {
    const Side key_side = side_in_place(a.key);
    a.run(query_side, &key_side);
  } else {
    a.run(query_side, nullptr);
  }
  write_back(a.query);
  if (a.has_key) write_back(a.key);
}

}  // namespace

void register_rotary(Library& m) {
  m.impl("rotary_embedding", &boxed_rotary_embedding);
  m.impl("rotary_embedding_", &boxed_rotary_embedding_);
}

}  // namespace vllm_ops
