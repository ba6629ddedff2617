# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding (RoFormer, arXiv:2104.09864) from an fp32 table of cosines and
sines."""

from __future__ import annotations

import torch
from torch import Tensor

from ._dtype import widen


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

    On the CPU the operators have checked the positions. Elsewhere a check would cost a
    synchronisation, so a position outside the table gives a row of NaN and never a wild read.
    """
    index = positions.long()
    if positions.device.type != "cpu":
        rows = cos_sin_cache.shape[0]
        outside = (index < 0) | (index >= rows)
        table = cos_sin_cache[index.clamp(0, max(rows - 1, 0))]
        table = table.masked_fill(outside.unsqueeze(-1), float("nan"))
    else:
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
