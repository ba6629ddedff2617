# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings over apply_rotary_pos_emb; fp64 and empty tensors on the reference.

Only the leading ``rotary_dim`` elements of a head are handed over; the others are put back after.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from vllm_ops.shared.reference import rotary as reference

from . import _hpex, _tpc, layernorm


def _gather(positions: Tensor, cos_sin_cache: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines ``positions.shape + [rotary_dim / 2]``; NaN for a position outside of the
    table, without asking the device which."""
    index = positions.long()
    rows = cos_sin_cache.shape[0]
    table = cos_sin_cache[index.clamp(0, rows - 1)]
    outside = (index < 0) | (index >= rows)
    cos, sin = table.masked_fill(outside.unsqueeze(-1), float("nan")).chunk(2, dim=-1)
    return cos, sin


def _turn(x: Tensor, cos: Tensor, sin: Tensor, is_neox_style: bool) -> Tensor:
    """``x`` is ``P + [heads, head_size]``, ``cos`` and ``sin`` are ``P + [rotary_dim / 2]``."""
    if x.dtype == torch.float64 or x.numel() == 0:
        return reference.rotate(x, cos.unsqueeze(-2), sin.unsqueeze(-2), is_neox_style).contiguous()
    half = cos.shape[-1]
    tokens = x.reshape(-1, *x.shape[-2:])
    turned = _hpex.rotate(
        tokens[..., : 2 * half],
        cos.float().reshape(-1, 1, half),
        sin.float().reshape(-1, 1, half),
        is_neox_style,
    ).to(x.dtype)
    if 2 * half < x.shape[-1]:
        turned = torch.cat((turned, tokens[..., 2 * half :]), -1)
    return turned.reshape(x.shape)


def _turn_heads(x: Tensor, cos: Tensor, sin: Tensor, head_size: int, is_neox_style: bool) -> Tensor:
    """The same for ``P + [heads * head_size]`` as well."""
    heads = reference.as_heads(x, cos.dim() - 1, head_size)
    return _turn(heads, cos, sin, is_neox_style).reshape(x.shape)


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> tuple[Tensor, Tensor | None]:
    cos, sin = _gather(positions, cos_sin_cache)
    turned_query = _turn_heads(query, cos, sin, head_size, is_neox_style)
    if key is None:
        return turned_query, None
    return turned_query, _turn_heads(key, cos, sin, head_size, is_neox_style)


def rotary_embedding_(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> None:
    turned_query, turned_key = rotary_embedding(
        positions, query, key, head_size, cos_sin_cache, is_neox_style
    )
    query.copy_(turned_query)
    if key is not None and turned_key is not None:
        key.copy_(turned_key)


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
    cos, sin = _gather(positions, cos_sin_cache)
    axis = reference.axis_of_pairs(cos.shape[-1], mrope_section, mrope_interleaved, cos.device)
    axis = axis.expand(1, *cos.shape[1:])
    cos, sin = cos.gather(0, axis)[0], sin.gather(0, axis)[0]
    turned_query = _turn_heads(query, cos, sin, head_size, is_neox_style)
    if key is None:
        return turned_query, None
    return turned_query, _turn_heads(key, cos, sin, head_size, is_neox_style)


def apply_rotary_emb(x: Tensor, cos: Tensor, sin: Tensor, is_neox_style: bool = True) -> Tensor:
    places = (*x.shape[:-2], cos.shape[-1])
    return _turn(x, cos.expand(places), sin.expand(places), is_neox_style)


def _norm_heads(
    query: Tensor,
    key: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    weight_offset: float,
    round_before_weight: bool,
) -> tuple[Tensor, Tensor]:
    """The norm of each head of ``P + [heads, head_size]``, in one TPC kernel where it fits."""
    fits = layernorm.why_native(query, eps, None) is None
    if fits and q_weight is not None and k_weight is not None:
        fits = _tpc.takes(query, key, q_weight, k_weight)
        if fits:
            normed_query, normed_key = _tpc.qk_norm(
                query.reshape(-1, *query.shape[-2:]),
                key.reshape(-1, *key.shape[-2:]),
                q_weight,
                k_weight,
                eps,
                weight_offset,
                round_before_weight,
            )
            return normed_query.reshape(query.shape), normed_key.reshape(key.shape)
    rest = (eps, None, weight_offset, round_before_weight)
    return layernorm.rms_norm(query, q_weight, *rest), layernorm.rms_norm(key, k_weight, *rest)


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
    cos, sin = _gather(positions, cos_sin_cache)
    normed_query, normed_key = _norm_heads(
        reference.as_heads(query, positions.dim(), head_size),
        reference.as_heads(key, positions.dim(), head_size),
        q_weight,
        k_weight,
        eps,
        weight_offset,
        round_before_weight,
    )
    return (
        _turn(normed_query, cos, sin, is_neox_style).reshape(query.shape),
        _turn(normed_key, cos, sin, is_neox_style).reshape(key.shape),
    )
