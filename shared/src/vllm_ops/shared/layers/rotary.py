# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding layers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ..custom_op import CustomOp
from ..ops import rotary as _ops

_Turned = tuple[Tensor, Tensor | None]

_rotary_embedding: Callable[..., _Turned] = _ops.rotary_embedding.call
_rotary_embedding_native: Callable[..., _Turned] = _ops.rotary_embedding.checked_native


@CustomOp.register("rotary_embedding")
class RotaryEmbedding(CustomOp):
    """Rotary position embedding (arXiv:2104.09864).

    ``forward(positions, query, key=None)`` returns ``(query, key)`` turned, inputs untouched.
    ``positions`` is int32 or int64 of shape ``P``; query and key are ``P + [num_heads *
    head_size]`` or ``P + [num_heads, head_size]``.

    Args:
        head_size: elements of a head.
        rotary_dim: how many of them turn, an even number.
        max_position: rows of the table.
        base: of the geometric series of wavelengths.
        is_neox_style: pairs ``(i, i + rotary_dim/2)`` if True (NeoX), ``(2i, 2i + 1)`` else
        (GPT-J).
    """

    ops = ("rotary_embedding",)

    cos_sin_cache: Tensor

    def __init__(
        self,
        head_size: int,
        rotary_dim: int,
        max_position: int,
        base: float,
        is_neox_style: bool,
        *,
        enabled: bool | None = None,
    ) -> None:
        super().__init__(enabled=enabled)
        self.head_size = head_size
        self.rotary_dim = rotary_dim
        self.max_position = max_position
        self.base = base
        self.is_neox_style = is_neox_style
        self.register_buffer("cos_sin_cache", self._table(), persistent=False)

    def _table(self) -> Tensor:
        inverse = 1.0 / self.base ** (
            torch.arange(0, self.rotary_dim, 2, dtype=torch.float32) / self.rotary_dim
        )
        angles = torch.arange(self.max_position, dtype=torch.float32)[:, None] * inverse
        return torch.cat((angles.cos(), angles.sin()), dim=-1)

    def forward_native(
        self, positions: Tensor, query: Tensor, key: Tensor | None = None
    ) -> _Turned:
        return _rotary_embedding_native(
            positions,
            query,
            key,
            self.head_size,
            self._buffers["cos_sin_cache"],
            self.is_neox_style,
        )

    def forward_kernel(
        self, positions: Tensor, query: Tensor, key: Tensor | None = None
    ) -> _Turned:
        return _rotary_embedding(
            positions,
            query,
            key,
            self.head_size,
            self._buffers["cos_sin_cache"],
            self.is_neox_style,
        )


@functools.lru_cache(maxsize=64)
def get_rope(
    head_size: int,
    rotary_dim: int,
    max_position: int,
    base: float = 10000.0,
    is_neox_style: bool = True,
) -> RotaryEmbedding:
    """One shared RotaryEmbedding per configuration."""
    return RotaryEmbedding(head_size, rotary_dim, max_position, base, is_neox_style)
