# SPDX-License-Identifier: Apache-2.0
"""The kernels under torch's ``XLA`` key."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from vllm_ops.shared.ops import OPS, register_in_place, register_kernel
from vllm_ops.shared.reference import rotary as reference
from vllm_ops.shared.reference._dtype import widen

from . import _limits
from ._bridge import call, pallas
from .kernels import activation, layernorm
from .kernels import rotary as rotary_kernels


def _parameter(value: Tensor | None) -> Tensor | None:
    """A weight as the kernels read it: fp16 and fp64 ones are widened or narrowed to fp32."""
    if value is None or value.dtype in _limits.PALLAS_DTYPES:
        return value
    return value.float()


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _gated(op: str) -> Callable[..., Tensor]:
    expression = getattr(activation, op)

    def kernel(x: Tensor, *values: Any) -> Tensor:
        if _limits.expression(x) is not None:
            return OPS[op].native(x, *values)
        names = OPTIONS.get(op, ())
        (result,) = call(expression, x, **dict(zip(names, values, strict=False)))
        return result

    return kernel


OPTIONS = {
    "gelu_and_mul": ("approximate",),
    "fatrelu_and_mul": ("threshold",),
    "silu_and_mul_with_clamp": ("limit",),
    "swigluoai_and_mul": ("alpha", "limit"),
}
"""The static arguments after ``x``."""


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> Tensor:
    if _limits.norm("rms_norm", x) is not None:
        return OPS["rms_norm"].native(
            x, weight, eps, variance_size, weight_offset, round_before_weight
        )
    (normed,) = pallas(
        layernorm.rms_norm,
        _rows(x),
        _parameter(weight),
        eps=eps,
        variance_size=variance_size,
        weight_offset=weight_offset,
        round_before_weight=round_before_weight,
    )
    return normed.reshape(x.shape)


def fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    if _limits.norm("fused_add_rms_norm", x) is not None:
        return OPS["fused_add_rms_norm"].native(
            x, residual, weight, eps, variance_size, weight_offset, round_before_weight
        )
    normed, total = pallas(
        layernorm.fused_add_rms_norm,
        _rows(x),
        _rows(residual),
        _parameter(weight),
        eps=eps,
        variance_size=variance_size,
        weight_offset=weight_offset,
        round_before_weight=round_before_weight,
    )
    return normed.reshape(x.shape), total.reshape(x.shape)


def _native_layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """The reference by its definition: torch-xla's ``F.layer_norm`` takes an fp32 eps."""
    wide = widen(x)
    centred = wide - wide.mean(-1, keepdim=True)
    normed = OPS["rms_norm"].native(centred, weight, eps)
    if bias is not None:
        normed = normed + bias.to(wide.dtype)
    return normed.to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    if _limits.norm("layer_norm", x) is not None:
        return _native_layer_norm(x, weight, bias, eps)
    (normed,) = pallas(
        layernorm.layer_norm, _rows(x), _parameter(weight), _parameter(bias), eps=eps
    )
    return normed.reshape(x.shape)


def rms_norm_gated(
    x: Tensor,
    gate: Tensor | None,
    weight: Tensor | None,
    eps: float,
    group_size: int | None = None,
    norm_before_gate: bool = True,
) -> Tensor:
    if _limits.norm("rms_norm_gated", x, group_size) is not None:
        return OPS["rms_norm_gated"].native(x, gate, weight, eps, group_size, norm_before_gate)
    (normed,) = pallas(
        layernorm.rms_norm_gated,
        _rows(x),
        None if gate is None else _parameter(_rows(gate)),
        _parameter(weight),
        eps=eps,
        group_size=group_size,
        norm_before_gate=norm_before_gate,
    )
    return normed.reshape(x.shape)


def _turn(
    cos_sin: Tensor,
    xs: Sequence[Tensor | None],
    head_size: int,
    is_neox_style: bool,
    weights: Sequence[Tensor | None] | None = None,
    **norm: Any,
) -> list[Any]:
    """Turn the query, and the key if there is one, by fp32 ``cos_sin [places, rotary_dim]``. With
    ``weights``, norm them before."""
    flat = [None if x is None else x.reshape(cos_sin.shape[0], -1) for x in xs]
    style = {"head_size": head_size, "is_neox_style": is_neox_style}
    if weights is None:
        turned = pallas(rotary_kernels.rotary_embedding, cos_sin, *flat, **style)
    else:
        parameters = map(_parameter, weights)
        turned = pallas(rotary_kernels.qk_norm_rope, cos_sin, *flat, *parameters, **style, **norm)
    given = iter(turned)
    return [None if x is None else next(given).reshape(x.shape) for x in xs]


def _angles(positions: Tensor, table: Tensor, axes: tuple[int, ...] | None = None) -> Tensor:
    """A row of cosines and sines for each place."""
    if positions.dtype != torch.int32:
        # The kernels count in 32 bits; outside stays outside.
        positions = positions.clamp(-1, table.shape[0]).int()
    shape = (-1,) if axes is None else (3, -1)
    (rows,) = call(rotary_kernels.table_rows, positions.reshape(shape), table, axes=axes)
    return rows


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> tuple[Tensor, Tensor | None]:
    if _limits.rotary((query, key), positions.numel(), head_size) is not None:
        args = (positions, query, key, head_size, cos_sin_cache, is_neox_style)
        return OPS["rotary_embedding"].native(*args)
    cos_sin = _angles(positions, cos_sin_cache)
    turned = _turn(cos_sin, (query, key), head_size, is_neox_style)
    return turned[0], turned[1]


def multimodal_rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    mrope_section: Sequence[int],
    mrope_interleaved: bool = False,
    is_neox_style: bool = True,
) -> tuple[Tensor, Tensor | None]:
    if query.numel() == 0:
        # Of nothing, each axis turns the same; torch-xla refuses to gather from it.
        args = (positions[0], query, key, head_size, cos_sin_cache, is_neox_style)
        return OPS["rotary_embedding"].native(*args)
    if _limits.rotary((query, key), positions[0].numel(), head_size) is not None:
        rest = (cos_sin_cache, mrope_section, mrope_interleaved, is_neox_style)
        return OPS["multimodal_rotary_embedding"].native(positions, query, key, head_size, *rest)
    pairs = cos_sin_cache.shape[1] // 2
    axes = reference.axis_of_pairs(pairs, mrope_section, mrope_interleaved, torch.device("cpu"))
    cos_sin = _angles(positions, cos_sin_cache, tuple(axes.tolist()))
    turned = _turn(cos_sin, (query, key), head_size, is_neox_style)
    return turned[0], turned[1]


def apply_rotary_emb(x: Tensor, cos: Tensor, sin: Tensor, is_neox_style: bool = True) -> Tensor:
    places = math.prod(x.shape[:-2])
    if _limits.rotary((x,), places, x.shape[-1]) is not None:
        return OPS["apply_rotary_emb"].native(x, cos, sin, is_neox_style)
    shape = (*x.shape[:-2], cos.shape[-1])
    cos_sin = torch.cat((cos.expand(shape), sin.expand(shape)), -1).float()
    turned = _turn(cos_sin.reshape(places, -1), (x,), x.shape[-1], is_neox_style)
    return turned[0]


def qk_norm_rope(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    if _limits.rotary((query, key), positions.numel(), head_size) is not None:
        norm = (q_weight, k_weight, eps)
        rest = (cos_sin_cache, is_neox_style, weight_offset, round_before_weight)
        return OPS["qk_norm_rope"].native(positions, query, key, head_size, *norm, *rest)
    turned = _turn(
        _angles(positions, cos_sin_cache),
        (query, key),
        head_size,
        is_neox_style,
        weights=(q_weight, k_weight),
        eps=eps,
        weight_offset=weight_offset,
        round_before_weight=round_before_weight,
    )
    return turned[0], turned[1]


KERNELS: dict[str, Callable[..., Any]] = {
    **{op: _gated(op) for op in _limits.EXPRESSIONS},
    "rms_norm": rms_norm,
    "fused_add_rms_norm": fused_add_rms_norm,
    "layer_norm": layer_norm,
    "rms_norm_gated": rms_norm_gated,
    "rotary_embedding": rotary_embedding,
    "multimodal_rotary_embedding": multimodal_rotary_embedding,
    "apply_rotary_emb": apply_rotary_emb,
    "qk_norm_rope": qk_norm_rope,
}


def register(dispatch_key: str) -> frozenset[str]:
    """Register every kernel; their names."""
    for op, kernel in KERNELS.items():
        register_kernel(op, dispatch_key, kernel)
    for op in _limits.IN_PLACE:
        register_in_place(op, dispatch_key)
    return frozenset((*KERNELS, *_limits.IN_PLACE))
