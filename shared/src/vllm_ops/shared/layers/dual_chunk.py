# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding for dual chunk attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..custom_op import CustomOp
from ..ops import _checks
from ..ops import rotary as _ops
from ..rope.scaling import RopeScaling
from ..rope.table import TableSpec
from ._rotary_table import RotaryTable, rotary_spec
from .rotary import Turned

_rotary_embedding: Callable[..., Turned] = _ops.rotary_embedding.call
_rotary_embedding_native: Callable[..., Turned] = _ops.rotary_embedding.checked_native


@CustomOp.register("dual_chunk_rotary_embedding")
class DualChunkRotaryEmbedding(RotaryTable):
    """Rotary embedding for dual chunk attention (arXiv:2402.17463; Qwen2.5-1M).

    The sequence is cut into chunks of ``L = chunk_size - local_size`` positions, and a query meets
    keys of its own chunk, of the previous one and of earlier ones under different positions, so
    that no distance exceeds what the model was trained on. ``forward(positions, query, key=None)``
    returns ``(queries, key)``: five turned queries side by side in the last dimension (take
    ``queries.chunk(5, -1)``), and the key, turned by ``p % L``. The queries of position ``p``:

    1. intra, ``p % L``: for keys of the same chunk;
    2. succ, ``min(p % L + L, chunk_size)``: for keys of the previous chunk;
    3. inter, ``min(2 L - 1, chunk_size)``: for keys of earlier chunks;
    4. succ critical, ``p % L + L``, and
    5. inter critical, ``p % L + chunk_size``: the same two without the upper limit, for choosing
       the critical tokens of sparse attention.

    Shapes, ``head_size``, ``rotary_dim``, ``base``, ``is_neox_style``, ``scaling``, ``device`` and
    errors are as for :class:`RotaryEmbedding`.

    Args:
        max_length: bounds the positions; the table has ``chunk_size + L`` rows whatever it is.
        chunk_size, local_size: of the configuration's ``dual_chunk_attention_config``.
    """

    ops = ("rotary_embedding",)

    def __init__(
        self,
        head_size: int,
        rotary_dim: int,
        max_position: int,
        base: float = 10000.0,
        is_neox_style: bool = True,
        *,
        chunk_size: int,
        local_size: int,
        scaling: RopeScaling | None = None,
        max_length: int | None = None,
        device: torch.device | str | None = None,
        enabled: bool | None = None,
    ) -> None:
        for name, value in (("chunk_size", chunk_size), ("local_size", local_size)):
            _checks.integer(self.name, name, value)
        _checks.boolean(self.name, "is_neox_style", is_neox_style)
        if not 0 <= local_size < chunk_size:
            raise ValueError(
                f"{self.name}: local_size must be at least 0 and below chunk_size ({chunk_size}), "
                f"got {local_size}"
            )
        spec = rotary_spec(
            self.name, head_size, rotary_dim, max_position, base, scaling, max_length
        )
        if type(spec.scaling) is not RopeScaling:
            raise ValueError(
                f"{self.name}: scaling must be None, got {spec.scaling.rope_type!r}: the chunks "
                "are the way to longer sequences here"
            )
        length = chunk_size - local_size
        rows = chunk_size + length
        table = TableSpec(spec.scaling, spec.dim, spec.base, max_position, rows)
        super().__init__(table, device=device, enabled=enabled)
        self.head_size = head_size
        self.rotary_dim = spec.rotary_dim
        self.max_position = max_position
        self.max_length = spec.length
        self.base = spec.base
        self.is_neox_style = is_neox_style
        self.scaling = spec.scaling
        self.chunk_size = chunk_size
        self.local_size = local_size
        self._length = length
        self._rows = rows

    def _turn_all(
        self,
        op: Callable[..., Turned],
        table: Tensor | None,
        positions: Tensor,
        query: Tensor,
        key: Tensor | None,
    ) -> Turned:
        # A position outside the sequence leads outside the table, whatever its chunk says.
        outside = (positions < 0) | (positions >= self.max_length)
        intra = positions % self._length

        def turn(at: Tensor, key: Tensor | None = None) -> Turned:
            at = at.masked_fill(outside, self._rows)
            return op(at, query, key, self.head_size, table, self.is_neox_style)

        first, turned_key = turn(intra, key)
        others = (
            (intra + self._length).clamp(max=self.chunk_size),
            torch.full_like(intra, min(2 * self._length - 1, self.chunk_size)),
            intra + self._length,
            intra + self.chunk_size,
        )
        return torch.cat([first, *(turn(at)[0] for at in others)], dim=-1), turned_key

    def _run(
        self, op: Callable[..., Turned], positions: Tensor, query: Tensor, key: Tensor | None
    ) -> Turned:
        _ops.check_positions(self.name, positions)
        if not torch.compiler.is_compiling():
            # Here, since the operator would speak of positions within a chunk.
            _ops.check_inside(self.name, positions, self.max_length)
        table = self._buffers["cos_sin_cache"]
        try:
            return self._turn_all(op, table, positions, query, key)
        except ValueError:
            table = self._table_elsewhere(query)
            if table is None:
                raise
        return self._turn_all(op, table, positions, query, key)

    def forward_native(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Turned:
        return self._run(_rotary_embedding_native, positions, query, key)

    def forward_kernel(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Turned:
        return self._run(_rotary_embedding, positions, query, key)

    def extra_repr(self) -> str:
        return (
            f"head_size={self.head_size}, rotary_dim={self.rotary_dim}, "
            f"chunk_size={self.chunk_size}, local_size={self.local_size}, "
            f"max_length={self.max_length}, base={self.base:g}, {super().extra_repr()}"
        )
