# SPDX-License-Identifier: Apache-2.0
"""Norms over the last dimension of ``x [rows, columns]``, bf16 or fp32, one pass over memory.

XLA splits a norm in two: the reduction, and what uses it, each of which reads ``x``. A Pallas block
holds whole rows, so that each element is read and written once. ``block_rows_of`` says how long a
row may be.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ._blocks import Array, block_rows, rounded, row_kernel
from ._math import silu

SMALLEST = float(np.finfo(np.float32).tiny)

MOVED = {"rms_norm": 2, "fused_add_rms_norm": 4, "layer_norm": 2, "rms_norm_gated": 3}
"""Arrays as wide as ``x`` that come and go."""
LIVE = 4
"""fp32 values per element: the row, its square, what is normed and the weight."""


def block_rows_of(op: str, rows: int, columns: int, dtype: Any) -> int:
    """The rows of a block of ``op``; 0 where a row is too long for VMEM."""
    if op == "rms_norm_gated":
        dtype = jnp.float32  # the gate may be, whatever ``x`` is
    return block_rows(rows, columns, dtype, MOVED[op], LIVE)


def _inverse_root(mean_square: Array, eps: float) -> Array:
    """``rsqrt(mean_square + eps)``, and 0 where that sum is 0, as in the reference."""
    total = mean_square + eps
    if eps < SMALLEST:
        total = jnp.where(total == 0, jnp.inf, total)
    return lax.rsqrt(total)


def _mean_square(x: Array, first: int | None = None) -> Array:
    """Over the last dimension, or the first so many elements of it."""
    square = x * x
    if first is not None and first < x.shape[-1]:
        lane = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
        # Selected, not multiplied by 0: an infinity further on must not reach the mean.
        square = jnp.where(lane < first, square, 0.0)
    return jnp.sum(square, -1, keepdims=True) / (x.shape[-1] if first is None else first)


def scaled(
    normed: Array, scale: Array | None, dtype: Any, round_before_weight: bool, interpret: Any
) -> Array:
    """What follows the division by the root mean square, fp32."""
    if scale is None:
        return normed
    if round_before_weight:
        normed = rounded(normed, dtype, interpret)
    return normed * scale


def root_mean_square_normed(x: Array, eps: float, variance_size: int | None = None) -> Array:
    """``x / rms(x)`` over the last dimension of fp32 values."""
    return x * _inverse_root(_mean_square(x, variance_size), eps)


def _rms_body(
    *refs: Any,
    residual: bool,
    weight: bool,
    eps: float,
    variance_size: int | None,
    weight_offset: float,
    round_before_weight: bool,
    interpret: Any,
) -> None:
    left = list(refs)
    x_ref = left.pop(0)
    dtype = x_ref.dtype
    x = x_ref[...].astype(jnp.float32)
    if residual:
        x = rounded(x + left.pop(0)[...].astype(jnp.float32), dtype, interpret)
    scale = None
    if weight:
        scale = left.pop(0)[...].astype(jnp.float32)
        if weight_offset != 0.0:
            scale = scale + weight_offset
    normed = root_mean_square_normed(x, eps, variance_size)
    left[0][...] = scaled(normed, scale, dtype, round_before_weight, interpret).astype(dtype)
    if residual:
        left[1][...] = x.astype(dtype)


def _rms(
    op: str, inputs: list[Array], weight: Array | None, interpret: Any, **options: Any
) -> tuple[Array, ...]:
    rows, columns = inputs[0].shape
    body = functools.partial(
        _rms_body,
        residual=len(inputs) == 2,
        weight=weight is not None,
        interpret=interpret,
        **options,
    )
    return row_kernel(
        body,
        op,
        inputs,
        [] if weight is None else [weight],
        [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs],
        block_rows_of(op, rows, columns, inputs[0].dtype),
        flops=(3 + len(inputs)) * rows * columns,
        transcendentals=rows,
        interpret=interpret,
    )


def rms_norm(
    x: Array,
    weight: Array | None = None,
    *,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
    interpret: Any = False,
) -> Array:
    """``weight`` is ``[columns]``, bf16 or fp32."""
    (normed,) = _rms(
        "rms_norm",
        [x],
        weight,
        interpret,
        eps=eps,
        variance_size=variance_size,
        weight_offset=weight_offset,
        round_before_weight=round_before_weight,
    )
    return normed


def fused_add_rms_norm(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    *,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
    interpret: Any = False,
) -> tuple[Array, Array]:
    """The norm of the sum, and the sum, which is rounded before."""
    normed, total = _rms(
        "fused_add_rms_norm",
        [x, residual],
        weight,
        interpret,
        eps=eps,
        variance_size=variance_size,
        weight_offset=weight_offset,
        round_before_weight=round_before_weight,
    )
    return normed, total


def _layer_norm_body(*refs: Any, weight: bool, bias: bool, eps: float) -> None:
    x_ref, *left = refs
    x = x_ref[...].astype(jnp.float32)
    centred = x - jnp.sum(x, -1, keepdims=True) / x.shape[-1]
    result = root_mean_square_normed(centred, eps)
    if weight:
        result = result * left.pop(0)[...].astype(jnp.float32)
    if bias:
        result = result + left.pop(0)[...].astype(jnp.float32)
    left[0][...] = result.astype(x_ref.dtype)


def layer_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    *,
    eps: float,
    interpret: Any = False,
) -> Array:
    """Biased variance; ``weight`` and ``bias`` are ``[columns]``, bf16 or fp32."""
    rows, columns = x.shape
    (normed,) = row_kernel(
        functools.partial(
            _layer_norm_body, weight=weight is not None, bias=bias is not None, eps=eps
        ),
        "layer_norm",
        [x],
        [value for value in (weight, bias) if value is not None],
        [jax.ShapeDtypeStruct(x.shape, x.dtype)],
        block_rows_of("layer_norm", rows, columns, x.dtype),
        flops=7 * rows * columns,
        transcendentals=rows,
        interpret=interpret,
    )
    return normed


def _gated_body(
    *refs: Any, gate: bool, weight: bool, eps: float, group_size: int, norm_before_gate: bool
) -> None:
    x_ref, *left = refs
    gate_ref = left.pop(0) if gate else None
    weight_ref = left.pop(0) if weight else None
    (out_ref,) = left
    for start in range(0, x_ref.shape[-1], group_size):
        group = slice(start, start + group_size)
        x = x_ref[:, group].astype(jnp.float32)
        if gate_ref is not None and not norm_before_gate:
            x = x * silu(gate_ref[:, group].astype(jnp.float32))
        result = root_mean_square_normed(x, eps)
        if weight_ref is not None:
            result = result * weight_ref[group].astype(jnp.float32)
        if gate_ref is not None and norm_before_gate:
            result = result * silu(gate_ref[:, group].astype(jnp.float32))
        out_ref[:, group] = result.astype(out_ref.dtype)


def rms_norm_gated(
    x: Array,
    gate: Array | None = None,
    weight: Array | None = None,
    *,
    eps: float,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    interpret: Any = False,
) -> Array:
    """``gate`` has the shape of ``x``; each group of ``group_size`` columns has a mean of its
    own."""
    rows, columns = x.shape
    has_gate, has_weight = gate is not None, weight is not None
    (normed,) = row_kernel(
        functools.partial(
            _gated_body,
            gate=has_gate,
            weight=has_weight,
            eps=eps,
            group_size=columns if group_size is None else group_size,
            norm_before_gate=norm_before_gate,
        ),
        "rms_norm_gated",
        [x] if gate is None else [x, gate],
        [] if weight is None else [weight],
        [jax.ShapeDtypeStruct(x.shape, x.dtype)],
        block_rows_of("rms_norm_gated", rows, columns, x.dtype),
        flops=(8 if has_gate else 4) * rows * columns,
        transcendentals=rows * (columns if has_gate else 1),
        interpret=interpret,
    )
    return normed
