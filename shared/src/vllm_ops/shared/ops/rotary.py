# SPDX-License-Identifier: Apache-2.0
"""Rotary operators: schemas, checks and fakes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
    rotary_dim = cos_sin_cache.shape[1]
    if rotary_dim % 2 or rotary_dim > head_size:
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


def _inside(op: str, positions: Tensor, cos_sin_cache: Tensor) -> None:
    """Reads the positions, so it runs on the CPU only."""
    if positions.device.type != "cpu" or positions.numel() == 0:
        return
    rows = cos_sin_cache.shape[0]
    low, high = int(positions.min()), int(positions.max())
    if low < 0:
        raise ValueError(f"{op}: positions must not be negative, got {low}")
    if high >= rows:
        raise ValueError(
            f"{op}: position {high} is outside the cos_sin_cache of {rows} rows; "
            f"ask get_rope for max_position >= {high + 1}"
        )


def _same(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _check_rotary_embedding(
    positions: Any,
    query: Any,
    key: Any,
    head_size: Any,
    cos_sin_cache: Any,
    is_neox_style: Any = True,
) -> None:
    op = "rotary_embedding"
    check.integral(op, "positions", positions)
    _query_and_key(op, positions.shape, query, key, head_size, cos_sin_cache)
    check.same_device(op, "positions", positions, "query", query)


def _check_rotary_embedding_values(
    positions: Any, query: Any, key: Any, head_size: Any, cos_sin_cache: Any, *_: Any
) -> None:
    _inside("rotary_embedding", positions, cos_sin_cache)


rotary_embedding = define(
    "rotary_embedding(Tensor positions, Tensor query, Tensor? key, int head_size, "
    "Tensor cos_sin_cache, bool is_neox_style=True) -> (Tensor, Tensor?)",
    native=reference.rotary_embedding,
    check=_check_rotary_embedding,
    check_values=_check_rotary_embedding_values,
    fake=lambda _, query, key, *__: (_same(query), None if key is None else _same(key)),
)
