# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding of query and key in one pass, with the norm of each head before it if wanted.

``cos_sin [tokens, rotary_dim]`` is fp32, cosines then sines, a row per token: ``table_rows`` has
XLA gather it from the table. A head's elements meet their partners by rotations of lanes: NeoX
pairs are half of the rotary dimension apart, GPT-J pairs are neighbours. A strided load of lanes,
which GPT-J style suggests, is something that the TPU does not have.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from ._blocks import LANES, Array, block_rows, rounded, row_kernel, settled
from .layernorm import root_mean_square_normed, scaled


def table_rows(positions: Array, table: Array, *, axes: tuple[int, ...] | None = None) -> Array:
    """The rows of ``table [max_position, rotary_dim]`` at int32 ``positions [tokens]``, NaN for one
    outside.

    With ``axes``, an axis for each pair, positions are ``[3, tokens]`` and each pair is taken from
    the row of its own.
    """
    last = table.shape[0] - 1
    rows = table.at[jnp.clip(positions, 0, last)].get(mode="promise_in_bounds")
    outside = (positions < 0) | (positions > last)
    rows = jnp.where(outside[..., None], jnp.nan, rows)
    if axes is None:
        return rows
    axis = jnp.asarray(axes * 2)
    return jnp.where(axis == 0, rows[0], jnp.where(axis == 1, rows[1], rows[2]))


def _turn_lanes(x: Array, by: int) -> Array:
    """``result[i] = x[i - by]`` along the last dimension, around its end."""
    width = x.shape[-1]
    if width % LANES == 0:
        return pltpu.roll(x, by % width, x.ndim - 1)
    return jnp.concatenate((x[..., -by:], x[..., :-by]), -1)


def _lane(like: Array) -> Array:
    return lax.broadcasted_iota(jnp.int32, like.shape, like.ndim - 1)


def _twice_each(values: Array, interpret: Any) -> Array:
    """``result[i] = values[i // 2]`` along the last dimension.

    Element ``i`` comes from ``(i + 1) // 2`` lanes before it. One rotation per bit of that
    distance: selecting by the lowest bit last, the elements that pass through lane ``j`` before the
    rotation by ``bit`` all have ``(j + 1) // (2 * bit)`` times ``bit`` left to go.
    """
    lane = _lane(values)
    bit = 1
    while 2 * bit <= values.shape[-1] // 2:
        bit *= 2
    result = values
    while bit:
        moves = (lane + 1) // (2 * bit) % 2 == 1
        result = settled(jnp.where(moves, _turn_lanes(result, bit), result), interpret)
        bit //= 2
    return result


def angles(cos_sin: Array, is_neox_style: bool, interpret: Any) -> tuple[Array, Array]:
    """The cosine of each element of a head, and the sine with the sign that its partner gets."""
    half = cos_sin.shape[-1] // 2
    swapped = _turn_lanes(cos_sin, half)
    lane = _lane(cos_sin)
    if is_neox_style:
        first = lane < half
        return jnp.where(first, cos_sin, swapped), jnp.where(first, -swapped, cos_sin)
    cos, sin = _twice_each(cos_sin, interpret), _twice_each(swapped, interpret)
    return cos, jnp.where(lane % 2 == 0, -sin, sin)


def _turn(x: Array, cos: Array, sin: Array, is_neox_style: bool) -> Array:
    """Turn all of the last dimension of fp32 ``x``."""
    if is_neox_style:
        partner = _turn_lanes(x, x.shape[-1] // 2)
    else:
        even = _lane(x) % 2 == 0
        partner = jnp.where(even, _turn_lanes(x, -1), _turn_lanes(x, 1))
    return x * cos + partner * sin


def _head(
    x: Array,
    cos: Array,
    sin: Array,
    weight: Array | None,
    dtype: Any,
    *,
    norm: bool,
    is_neox_style: bool,
    eps: float,
    round_before_weight: bool,
    interpret: Any,
) -> Array:
    """One head of each token, fp32."""
    if norm:
        normed = root_mean_square_normed(x, eps)
        x = scaled(normed, weight, dtype, round_before_weight, interpret)
        x = settled(rounded(x, dtype, interpret), interpret)
    rotary_dim = cos.shape[-1]
    if rotary_dim == x.shape[-1]:
        return _turn(x, cos, sin, is_neox_style)
    turned = _turn(x[..., :rotary_dim], cos, sin, is_neox_style)
    return jnp.concatenate((turned, x[..., rotary_dim:]), -1)


def _body(
    *refs: Any,
    parts: int,
    weights: tuple[bool, ...],
    head_size: int,
    is_neox_style: bool,
    weight_offset: float,
    interpret: Any,
    **options: Any,
) -> None:
    cos_sin_ref, *left = refs
    cos, sin = angles(cos_sin_ref[...], is_neox_style, interpret)
    cos, sin = settled(cos, interpret), settled(sin, interpret)
    x_refs, left = left[:parts], left[parts:]
    for x_ref, out_ref, has_weight in zip(x_refs, left[-parts:], weights, strict=True):
        weight = None
        if has_weight:
            weight = left.pop(0)[...].astype(jnp.float32)
            if weight_offset != 0.0:
                weight = weight + weight_offset
        head = functools.partial(
            _head, dtype=x_ref.dtype, is_neox_style=is_neox_style, interpret=interpret, **options
        )
        for start in range(0, x_ref.shape[-1], head_size):
            one = slice(start, start + head_size)
            x = x_ref[:, one].astype(jnp.float32)
            out_ref[:, one] = head(x, cos, sin, weight=weight).astype(out_ref.dtype)


def block_rows_of(tokens: int, columns: int, dtype: Any) -> int:
    """The tokens of a block where query and key have so many columns together; 0 where they are too
    wide for VMEM."""
    return block_rows(tokens, columns, dtype, moved=2, live=2)


def _run(
    name: str,
    cos_sin: Array,
    xs: Sequence[Array],
    weights: Sequence[Array | None],
    interpret: Any,
    **options: Any,
) -> tuple[Array, ...]:
    elements = sum(x.size for x in xs)
    return row_kernel(
        functools.partial(
            _body,
            parts=len(xs),
            weights=tuple(weight is not None for weight in weights),
            interpret=interpret,
            **options,
        ),
        name,
        [cos_sin, *xs],
        [weight for weight in weights if weight is not None],
        [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xs],
        block_rows_of(xs[0].shape[0], sum(x.shape[1] for x in xs), xs[0].dtype),
        flops=(8 if options["norm"] else 4) * elements,
        transcendentals=elements // options["head_size"] if options["norm"] else 0,
        interpret=interpret,
    )


def rotary_embedding(
    cos_sin: Array,
    query: Array,
    key: Array | None = None,
    *,
    head_size: int,
    is_neox_style: bool = True,
    interpret: Any = False,
) -> tuple[Array, ...]:
    """Turn the query, and the key if there is one.

    Args:
        cos_sin: fp32 ``[tokens, rotary_dim]``.
        query, key: ``[tokens, heads * head_size]``, bf16 or fp32: as projections give them, and
            without the padding of a dimension of few heads.
    """
    xs = [query] if key is None else [query, key]
    return _run(
        "rotary_embedding",
        cos_sin,
        xs,
        [None] * len(xs),
        interpret,
        head_size=head_size,
        is_neox_style=is_neox_style,
        norm=False,
        eps=0.0,
        weight_offset=0.0,
        round_before_weight=True,
    )


def qk_norm_rope(
    cos_sin: Array,
    query: Array,
    key: Array,
    q_weight: Array | None = None,
    k_weight: Array | None = None,
    *,
    head_size: int,
    eps: float,
    is_neox_style: bool = True,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
    interpret: Any = False,
) -> tuple[Array, ...]:
    """The norm of each head, with weights ``[head_size]``, rounded; then the rotation."""
    return _run(
        "qk_norm_rope",
        cos_sin,
        [query, key],
        [q_weight, k_weight],
        interpret,
        head_size=head_size,
        is_neox_style=is_neox_style,
        norm=True,
        eps=eps,
        weight_offset=weight_offset,
        round_before_weight=round_before_weight,
    )
