# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from ..custom_op import CustomOp
from ..ops import _checks
from ..ops import rotary as _ops
from ..rope.scaling import RopeScaling
from ._rotary_table import RotaryTable, rotary_spec

Turned = tuple[Tensor, Tensor | None]

_rotary_embedding: Callable[..., Turned] = _ops.rotary_embedding.call
_rotary_embedding_native: Callable[..., Turned] = _ops.rotary_embedding.checked_native


@CustomOp.register("rotary_embedding")
class RotaryEmbedding(RotaryTable):
    """Rotary position embedding (arXiv:2104.09864), with any scaling of
    :mod:`vllm_ops.shared.rope`. :func:`get_rope` builds it from a model's configuration.

    ``forward(positions, query, key=None)`` returns ``(query, key)`` turned, inputs untouched.
    ``positions`` is int32 or int64 of shape ``P``; query and key are ``P + [num_heads *
    head_size]`` or ``P + [num_heads, head_size]``.

    Args:
        head_size: elements of a head.
        rotary_dim: how many of them turn. Even, or odd and below ``head_size``: then one more turns
            (full pairs), with exponents over the odd width, as in ``transformers``.
        max_position: the model's ``max_position_embeddings``.
        base: of the geometric series of wavelengths (``rope_theta``).
        is_neox_style: pairs ``(i, i + rotary_dim/2)`` if True (NeoX), ``(2i, 2i + 1)`` else
            (GPT-J).
        scaling: the scaling, none by default.
        max_length: rows of the table, that is the longest sequence; by default as long as the
            scaling allows.
        device: of the table.

    Raises:
        ValueError: a size does not fit, or on the CPU a position is outside the table; on other
            devices, where a check would cost a synchronisation, such a row is NaN.
        TypeError: an input is not a tensor of a dtype that it can have.
    """

    ops: ClassVar[tuple[str, ...]] = ("rotary_embedding",)

    def __init__(
        self,
        head_size: int,
        rotary_dim: int,
        max_position: int,
        base: float = 10000.0,
        is_neox_style: bool = True,
        *,
        scaling: RopeScaling | None = None,
        max_length: int | None = None,
        device: torch.device | str | None = None,
        enabled: bool | None = None,
    ) -> None:
        _checks.boolean(self.name, "is_neox_style", is_neox_style)
        spec = rotary_spec(
            self.name, head_size, rotary_dim, max_position, base, scaling, max_length
        )
        super().__init__(spec, device=device, enabled=enabled)
        self.head_size = head_size
        self.rotary_dim = spec.rotary_dim
        self.max_position = max_position
        self.max_length = spec.length
        self.base = spec.base
        self.is_neox_style = is_neox_style
        self.scaling = spec.scaling

    def _turn(
        self, op: Callable[..., Turned], positions: Tensor, query: Tensor, key: Tensor | None
    ) -> Turned:
        table = self._buffers["cos_sin_cache"]
        try:
            return op(positions, query, key, self.head_size, table, self.is_neox_style)
        except ValueError:
            table = self._table_elsewhere(query)
            if table is None:
                raise
        return op(positions, query, key, self.head_size, table, self.is_neox_style)

    def forward_native(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Turned:
        return self._turn(_rotary_embedding_native, positions, query, key)

    def forward_kernel(self, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Turned:
        # The dictionary, because attributes go through nn.Module.__getattr__, 0.04 us each; and no
        # argument that equals its default, 0.07 us each to parse.
        state = self.__dict__
        head_size, table = state["head_size"], state["_buffers"]["cos_sin_cache"]
        try:
            if state["is_neox_style"]:
                return _rotary_embedding(positions, query, key, head_size, table)
            return _rotary_embedding(positions, query, key, head_size, table, False)
        except ValueError:
            return self._turn(_rotary_embedding, positions, query, key)

    def extra_repr(self) -> str:
        return (
            f"head_size={self.head_size}, rotary_dim={self.rotary_dim}, "
            f"{self.scaling.rope_type}, max_length={self.max_length}, base={self.base:g}, "
            f"is_neox_style={self.is_neox_style}, {super().extra_repr()}"
        )
