# SPDX-License-Identifier: Apache-2.0
"""Multimodal rotary position embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..custom_op import CustomOp
from ..ops import _checks
from ..ops import rotary as _ops
from .rotary import RotaryEmbedding, Turned

_multimodal: Callable[..., Turned] = _ops.multimodal_rotary_embedding.call
_multimodal_native: Callable[..., Turned] = _ops.multimodal_rotary_embedding.checked_native


@CustomOp.register("multimodal_rotary_embedding")
class MRotaryEmbedding(RotaryEmbedding):
    """Rotary embedding with three positions for each place: time, height and width
    (arXiv:2409.12191).

    ``forward(positions, query, key=None)`` returns ``(query, key)`` turned. ``positions`` is
    ``[3] + P``. One dimension means text, whose three positions are the same: ``P`` is then
    ``[tokens]``, as for :class:`RotaryEmbedding`.

    Args:
        mrope_section: how many pairs each axis turns, in the order time, height, width.
        mrope_interleaved: whether the axes alternate from pair to pair (Qwen3-VL) instead of
            following each other (Qwen2-VL).

    The other arguments and the errors are those of :class:`RotaryEmbedding`.
    """

    ops = ("multimodal_rotary_embedding", "rotary_embedding")

    def __init__(
        self,
        head_size: int,
        rotary_dim: int,
        max_position: int,
        base: float = 10000.0,
        is_neox_style: bool = True,
        *,
        mrope_section: Sequence[int],
        mrope_interleaved: bool = False,
        **arguments: Any,
    ) -> None:
        op = "multimodal_rotary_embedding"
        _checks.integer(op, "rotary_dim", rotary_dim)
        _ops.check_mrope_section(op, mrope_section, (rotary_dim + 1) // 2)
        _checks.boolean(op, "mrope_interleaved", mrope_interleaved)
        super().__init__(head_size, rotary_dim, max_position, base, is_neox_style, **arguments)
        self.mrope_section = list(mrope_section)
        self.mrope_interleaved = mrope_interleaved

    def _turn_by_axes(
        self, op: Callable[..., Turned], positions: Tensor, query: Tensor, key: Tensor | None
    ) -> Turned:
        rest = (self.mrope_section, self.mrope_interleaved, self.is_neox_style)
        table = self._buffers["cos_sin_cache"]
        try:
            return op(positions, query, key, self.head_size, table, *rest)
        except ValueError:
            table = self._table_elsewhere(query)
            if table is None:
                raise
        return op(positions, query, key, self.head_size, table, *rest)

    def forward_native(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Turned:
        if isinstance(positions, Tensor) and positions.dim() < 2:
            return super().forward_native(positions, query, key)
        return self._turn_by_axes(_multimodal_native, positions, query, key)

    def forward_kernel(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Turned:
        if isinstance(positions, Tensor) and positions.dim() < 2:
            return super().forward_kernel(positions, query, key)
        return self._turn_by_axes(_multimodal, positions, query, key)

    def extra_repr(self) -> str:
        return (
            f"mrope_section={self.mrope_section}, interleaved={self.mrope_interleaved}, "
            f"{super().extra_repr()}"
        )
