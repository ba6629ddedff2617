# SPDX-License-Identifier: Apache-2.0
"""Rotary operators: schemas, checks and fakes."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..reference import rotary as reference
from . import _checks as check
from ._define import define


def _table(op: str, cos_sin_cache: Any, head_size: Any, device_of: Tensor) -> None:
    check.tensor(op, "cos_sin_cache", cos_sin_cache)
    if cos_sin_cache.dtype != torch.float32:
        raise TypeError(
            f"{op}: cos_sin_cache must be float32, got {check.short(cos_sin_cache.dtype)}"
        )
    if cos_sin_cache.dim() != 2:
        raise ValueError(
            f"{op}: cos_sin_cache must have 2 dimensions [max_position, rotary_dim], "
            f"got {cos_sin_cache.dim()}"
        )
    if cos_sin_cache.shape[0] < 1:
        raise ValueError(f"{op}: cos_sin_cache must have at least 1 row, got 0")
    rotary_dim = cos_sin_cache.shape[1]
    if rotary_dim % 2 or not 0 < rotary_dim <= head_size:
        raise ValueError(
            f"{op}: cos_sin_cache must have an even number of columns, at most head_size "
            f"{head_size}, got {rotary_dim}"
        )
    check.same_device(op, "cos_sin_cache", cos_sin_cache, "query", device_of)


def _heads(op: str, name: str, x: Any, places: Any, head_size: Any) -> None:
    """``x`` is ``places + [num_heads * head_size]`` or ``places + [num_heads, head_size]``."""
    check.floating(op, name, x)
    rank = len(places)
    shape = x.shape
    fits = shape[:rank] == places and (
        (x.dim() == rank + 1 and shape[-1] % head_size == 0)
        or (x.dim() == rank + 2 and shape[-1] == head_size)
    )
    if not fits:
        lead = "".join(f"{size}, " for size in places)
        raise ValueError(
            f"{op}: {name} must have shape [{lead}num_heads * {head_size}] or "
            f"[{lead}num_heads, {head_size}], got {list(shape)}"
        )


def _query_and_key(
    op: str, places: Any, query: Any, key: Any, head_size: Any, cos_sin_cache: Any
) -> None:
    check.integer(op, "head_size", head_size)
    if head_size < 1:
        raise ValueError(f"{op}: head_size must be above 0, got {head_size}")
    _heads(op, "query", query, places, head_size)
    if key is not None:
        _heads(op, "key", key, places, head_size)
        check.same_dtype(op, "key", key, query)
        check.same_device(op, "key", key, "query", query)
    _table(op, cos_sin_cache, head_size, query)


def check_positions(op: str, positions: Any) -> None:
    check.integral(op, "positions", positions)


def check_inside(op: str, positions: Tensor, length: int) -> None:
    """Reads the positions, so it runs on the CPU only, and not for tensors without data."""
    if (
        positions.device.type != "cpu"
        or positions.numel() == 0
        or isinstance(positions, FakeTensor)
    ):
        return
    low, high = int(positions.min()), int(positions.max())
    if low < 0:
        raise ValueError(f"{op}: positions must not be negative, got {low}")
    if high >= length:
        raise ValueError(
            f"{op}: positions must be below {length}, the length of the table, got {high}; "
            f"ask get_rope for max_length={high + 1} or more"
        )


def _same(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


_Pair = tuple[Tensor, Tensor | None]


def _same_pair(query: Tensor, key: Tensor | None) -> _Pair:
    return _same(query), None if key is None else _same(key)


def _rotary(
    op: str, positions: Any, query: Any, key: Any, head_size: Any, cos_sin_cache: Any
) -> None:
    check_positions(op, positions)
    _query_and_key(op, positions.shape, query, key, head_size, cos_sin_cache)
    check.same_device(op, "positions", positions, "query", query)


def _check_rotary_embedding(
    positions: Any,
    query: Any,
    key: Any,
    head_size: Any,
    cos_sin_cache: Any,
    is_neox_style: Any = True,
) -> None:
    _rotary("rotary_embedding", positions, query, key, head_size, cos_sin_cache)
    check.boolean("rotary_embedding", "is_neox_style", is_neox_style)


def _check_rotary_embedding_values(
    positions: Any, query: Any, key: Any, head_size: Any, cos_sin_cache: Any, *_: Any
) -> None:
    check_inside("rotary_embedding", positions, cos_sin_cache.shape[0])


rotary_embedding = define(
    "rotary_embedding(Tensor positions, Tensor query, Tensor? key, int head_size, "
    "Tensor cos_sin_cache, bool is_neox_style=True) -> (Tensor, Tensor?)",
    native=reference.rotary_embedding,
    check=_check_rotary_embedding,
    check_values=_check_rotary_embedding_values,
    fake=lambda _, query, key, *__: _same_pair(query, key),
)


def _check_rotary_embedding_(
    positions: Any,
    query: Any,
    key: Any,
    head_size: Any,
    cos_sin_cache: Any,
    is_neox_style: Any = True,
) -> None:
    op = "rotary_embedding_"
    _rotary(op, positions, query, key, head_size, cos_sin_cache)
    check.boolean(op, "is_neox_style", is_neox_style)
    check.writable(op, "query", query)
    if key is not None:
        check.writable(op, "key", key)
        check.apart(op, "key", key, "query", query)
    for of, written in (("query", query), ("key", key)):
        if written is not None:
            check.apart(op, "positions", positions, of, written)
            check.apart(op, "cos_sin_cache", cos_sin_cache, of, written)


def _check_rotary_embedding_values_(
    positions: Any, query: Any, key: Any, head_size: Any, cos_sin_cache: Any, *_: Any
) -> None:
    check_inside("rotary_embedding_", positions, cos_sin_cache.shape[0])


def _rotary_embedding_(positions: Tensor, query: Tensor, key: Tensor | None, *args: Any) -> None:
    turned_query, turned_key = reference.rotary_embedding(positions, query, key, *args)
    query.copy_(turned_query)
    if key is not None and turned_key is not None:
        key.copy_(turned_key)


rotary_embedding_ = define(
    "rotary_embedding_(Tensor positions, Tensor(a!) query, Tensor(b!)? key, int head_size, "
    "Tensor cos_sin_cache, bool is_neox_style=True) -> ()",
    native=_rotary_embedding_,
    check=_check_rotary_embedding_,
    check_values=_check_rotary_embedding_values_,
    fake=lambda *_: None,
    differentiable=False,
)


def check_mrope_section(op: str, mrope_section: Any, pairs: Any) -> None:
    """Three numbers of pairs that add up to all of them."""
    allowed = f"three integers >= 0 whose sum is rotary_dim / 2, {pairs}"
    if not isinstance(mrope_section, Sequence) or isinstance(mrope_section, str):
        got = type(mrope_section).__name__
        raise TypeError(f"{op}: mrope_section must be {allowed}, got {got}")
    if any(isinstance(n, bool) or not isinstance(n, Integral) for n in mrope_section):
        raise TypeError(f"{op}: mrope_section must be {allowed}, got {list(mrope_section)}")
    fits = len(mrope_section) == 3 and all(n >= 0 for n in mrope_section)
    if not fits or sum(mrope_section) != pairs:
        raise ValueError(f"{op}: mrope_section must be {allowed}, got {list(mrope_section)}")


def _check_multimodal_rotary_embedding(
    positions: Any,
    query: Any,
    key: Any,
    head_size: Any,
    cos_sin_cache: Any,
    mrope_section: Any,
    mrope_interleaved: Any = False,
    is_neox_style: Any = True,
) -> None:
    op = "multimodal_rotary_embedding"
    check_positions(op, positions)
    if positions.dim() < 1 or positions.shape[0] != 3:
        raise ValueError(
            f"{op}: positions must have 3 rows in the first dimension, "
            f"got shape {list(positions.shape)}"
        )
    _query_and_key(op, positions.shape[1:], query, key, head_size, cos_sin_cache)
    check.same_device(op, "positions", positions, "query", query)
    check_mrope_section(op, mrope_section, cos_sin_cache.shape[1] // 2)
    check.boolean(op, "mrope_interleaved", mrope_interleaved)
    check.boolean(op, "is_neox_style", is_neox_style)


def _check_multimodal_rotary_embedding_values(
    positions: Any, query: Any, key: Any, head_size: Any, cos_sin_cache: Any, *_: Any
) -> None:
    check_inside("multimodal_rotary_embedding", positions, cos_sin_cache.shape[0])


multimodal_rotary_embedding = define(
    "multimodal_rotary_embedding(Tensor positions, Tensor query, Tensor? key, int head_size, "
    "Tensor cos_sin_cache, int[] mrope_section, bool mrope_interleaved=False, "
    "bool is_neox_style=True) -> (Tensor, Tensor?)",
    native=reference.multimodal_rotary_embedding,
    check=_check_multimodal_rotary_embedding,
    check_values=_check_multimodal_rotary_embedding_values,
    fake=lambda _, query, key, *__: _same_pair(query, key),
)


def _check_apply_rotary_emb(x: Any, cos: Any, sin: Any, is_neox_style: Any = True) -> None:
    op = "apply_rotary_emb"
    check.floating(op, "x", x)
    check.rank_at_least(op, "x", x, 2)
    for name, value in (("cos", cos), ("sin", sin)):
        check.floating(op, name, value)
        check.rank_at_least(op, name, value, 1)
        check.same_device(op, name, value, "x", x)
    check.same_shape(op, "sin", sin, cos)
    leads = (x.shape[:-2], x.shape[-3:-2])
    if cos.shape[:-1] not in leads or not 0 < 2 * cos.shape[-1] <= x.shape[-1]:
        shapes = [f"[{', '.join([*map(str, lead), 'n'])}]" for lead in leads]
        raise ValueError(
            f"{op}: cos must have shape {' or '.join(dict.fromkeys(shapes))} with "
            f"0 < 2 * n <= {x.shape[-1]}, got {list(cos.shape)}"
        )
    check.boolean(op, "is_neox_style", is_neox_style)


apply_rotary_emb = define(
    "apply_rotary_emb(Tensor x, Tensor cos, Tensor sin, bool is_neox_style=True) -> Tensor",
    native=reference.apply_rotary_emb,
    check=_check_apply_rotary_emb,
    fake=lambda x, *_: _same(x),
)


def _check_qk_norm_rope(
    positions: Any,
    query: Any,
    key: Any,
    head_size: Any,
    q_weight: Any,
    k_weight: Any,
    eps: Any,
    cos_sin_cache: Any,
    is_neox_style: Any = True,
    weight_offset: Any = 0.0,
    round_before_weight: Any = True,
) -> None:
    op = "qk_norm_rope"
    check.tensor(op, "key", key)
    _rotary(op, positions, query, key, head_size, cos_sin_cache)
    check.vector(op, "q_weight", q_weight, head_size, "query", query)
    check.vector(op, "k_weight", k_weight, head_size, "query", query)
    check.epsilon(op, eps)
    check.boolean(op, "is_neox_style", is_neox_style)
    check.number(op, "weight_offset", weight_offset)
    check.boolean(op, "round_before_weight", round_before_weight)


def _check_qk_norm_rope_values(
    positions: Any,
    query: Any,
    key: Any,
    head_size: Any,
    q_weight: Any,
    k_weight: Any,
    eps: Any,
    cos_sin_cache: Any,
    *_: Any,
) -> None:
    check_inside("qk_norm_rope", positions, cos_sin_cache.shape[0])


qk_norm_rope = define(
    "qk_norm_rope(Tensor positions, Tensor query, Tensor key, int head_size, Tensor? q_weight, "
    "Tensor? k_weight, float eps, Tensor cos_sin_cache, bool is_neox_style=True, "
    "float weight_offset=0.0, bool round_before_weight=True) -> (Tensor, Tensor)",
    native=reference.qk_norm_rope,
    check=_check_qk_norm_rope,
    check_values=_check_qk_norm_rope_values,
    fake=lambda _, query, key, *__: (_same(query), _same(key)),
)
