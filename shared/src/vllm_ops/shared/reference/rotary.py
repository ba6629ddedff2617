# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding (RoFormer, arXiv:2104.09864) from an fp32 table of cosines and
sines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from ._dtype import widen
from .layernorm import rms_norm


def rotate(x: Tensor, cos: Tensor, sin: Tensor, is_neox_style: bool) -> Tensor:
    """Turn the first ``2 * cos.shape[-1]`` elements of each head.

    ``x`` is ``[..., num_heads, head_size]``; ``cos`` and ``sin`` broadcast against
    ``[..., num_heads, rotary_dim / 2]``.
    """
    half = cos.shape[-1]
    wide = widen(x)
    cos, sin = cos.to(wide.dtype), sin.to(wide.dtype)
    turning = wide[..., : 2 * half]
    if is_neox_style:
        first, second = turning[..., :half], turning[..., half:]
    else:
        first, second = turning[..., ::2], turning[..., 1::2]
    turned = (first * cos - second * sin, second * cos + first * sin)
    both = torch.cat(turned, -1) if is_neox_style else torch.stack(turned, -1).flatten(-2)
    return torch.cat((both.to(x.dtype), x[..., 2 * half :]), -1)


def as_heads(x: Tensor, positions_dim: int, head_size: int) -> Tensor:
    """``P + [num_heads * head_size]`` or ``P + [num_heads, head_size]`` as the latter."""
    return x.unflatten(-1, (-1, head_size)) if x.dim() == positions_dim + 1 else x


def gather(positions: Tensor, cos_sin_cache: Tensor) -> tuple[Tensor, Tensor]:
    """The cosines and sines of ``positions``: two ``P + [1, rotary_dim / 2]``.

    On the CPU the operators have checked the positions, or the compiled graph does. Elsewhere a
    check would cost a synchronisation, so a position outside the table gives a row of NaN and never
    a wild read; so does an exported graph, which may run anywhere, and vmap over positions, which
    hides their values.
    """
    index = positions.long()
    rows = cos_sin_cache.shape[0]
    hidden = torch.compiler.is_exporting() or torch._C._functorch.is_batchedtensor(positions)
    if positions.device.type != "cpu" or hidden:
        outside = (index < 0) | (index >= rows)
        table = cos_sin_cache[index.clamp(0, max(rows - 1, 0))]
        table = table.masked_fill(outside.unsqueeze(-1), float("nan"))
    else:
        if torch.compiler.is_compiling():
            inside = ((index >= 0) & (index < rows)).all()
            torch._assert_async(inside, "rotary: a position is outside the cos_sin_cache")
        table = cos_sin_cache[index]
    cos, sin = table.unsqueeze(-2).chunk(2, dim=-1)
    return cos, sin


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> tuple[Tensor, Tensor | None]:
    cos, sin = gather(positions, cos_sin_cache)

    def turn(x: Tensor) -> Tensor:
        heads = as_heads(x, positions.dim(), head_size)
        return rotate(heads, cos, sin, is_neox_style).reshape(x.shape)

    return turn(query), None if key is None else turn(key)


def axis_of_pairs(
    pairs: int, mrope_section: Sequence[int], mrope_interleaved: bool, device: torch.device
) -> Tensor:
    """Which of the three position axes turns each pair: int64 ``[pairs]``.

    Computed on the device rather than copied there, which would be a synchronisation.
    """
    pair = torch.arange(pairs, device=device)
    first, second, third = mrope_section
    if mrope_interleaved:
        is_second = (pair % 3 == 1) & (pair < 3 * second)
        is_third = (pair % 3 == 2) & (pair < 3 * third)
        return is_second.long() + 2 * is_third.long()
    return (pair >= first).long() + (pair >= first + second).long()


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
    """Sections as in Qwen2-VL (arXiv:2409.12191), interleaved as in Qwen3-VL."""
    cos, sin = gather(positions, cos_sin_cache)
    axis = axis_of_pairs(cos.shape[-1], mrope_section, mrope_interleaved, cos.device)
    axis = axis.expand(1, *cos.shape[1:])
    cos, sin = cos.gather(0, axis)[0], sin.gather(0, axis)[0]

    def turn(x: Tensor) -> Tensor:
        heads = as_heads(x, positions.dim() - 1, head_size)
        return rotate(heads, cos, sin, is_neox_style).reshape(x.shape)

    return turn(query), None if key is None else turn(key)


def apply_rotary_emb(x: Tensor, cos: Tensor, sin: Tensor, is_neox_style: bool = True) -> Tensor:
    return rotate(x, cos.unsqueeze(-2), sin.unsqueeze(-2), is_neox_style)


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
    """The norm of each head as in Qwen3, then the rotation; the norm is rounded in between."""

    def norm(x: Tensor, weight: Tensor | None) -> Tensor:
        heads = as_heads(x, positions.dim(), head_size)
        return rms_norm(heads, weight, eps, None, weight_offset, round_before_weight).reshape(
            x.shape
        )

    turned_query, turned_key = rotary_embedding(
        positions,
        norm(query, q_weight),
        norm(key, k_weight),
        head_size,
        cos_sin_cache,
        is_neox_style,
    )
    return turned_query, cast(Tensor, turned_key)
