# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..ops import rotary as _ops

__all__ = ["rotary_embedding"]

_rotary_embedding: Callable[..., tuple[Tensor, Tensor | None]] = _ops.rotary_embedding.call


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Rotary position embedding (arXiv:2104.09864) from an fp32 table.

    Args:
        positions: ``P``, int32 or int64.
        query: ``P + [num_heads * head_size]`` or ``P + [num_heads, head_size]``.
        key: alike, with its own number of heads and the dtype of ``query``; or None.
        head_size: above 0.
        cos_sin_cache: fp32 ``[max_position, rotary_dim]``, cosines then sines.
        is_neox_style: pairs element ``i`` with ``i + rotary_dim / 2``; False pairs ``2i`` with
        ``2i + 1``, as in GPT-J.

    Returns:
        The turned query and key, in their shapes.

    Raises:
        TypeError: a dtype does not fit.
        ValueError: a shape or device does not fit; on the CPU also a position outside the table.
    """
    return _rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox_style)
