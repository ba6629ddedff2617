# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding by given cosines and sines, and fused with the norm of query and key."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor

from ..custom_op import CustomOp
from ..ops import _checks
from ..ops import rotary as _ops
from .mrope import MRotaryEmbedding
from .rotary import RotaryEmbedding

_Pair = tuple[Tensor, Tensor]

_apply_rotary_emb: Callable[..., Tensor] = _ops.apply_rotary_emb.call
_qk_norm_rope: Callable[..., _Pair] = _ops.qk_norm_rope.call
_qk_norm_rope_native: Callable[..., _Pair] = _ops.qk_norm_rope.checked_native


@CustomOp.register("apply_rotary_emb")
class ApplyRotaryEmb(CustomOp):
    """Rotary embedding with cosines and sines that the model computes itself.

    ``forward(x, cos, sin)`` turns ``x``, ``P + [num_heads, head_size]``, by ``cos`` and ``sin``,
    ``P + [rotary_dim / 2]`` or ``P[-1:] + [rotary_dim / 2]``, in any floating dtype.

    Args:
        is_neox_style: pairs ``(i, i + rotary_dim/2)`` if True (NeoX), ``(2i, 2i + 1)`` else
            (GPT-J).

    Raises:
        TypeError: an argument is not a floating point tensor.
        ValueError: a shape does not fit.
    """

    ops = ("apply_rotary_emb",)

    def __init__(self, is_neox_style: bool = True, *, enabled: bool | None = None) -> None:
        _checks.boolean("apply_rotary_emb", "is_neox_style", is_neox_style)
        super().__init__(enabled=enabled)
        self.is_neox_style = is_neox_style

    def forward_native(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return cast(Tensor, _ops.apply_rotary_emb.checked_native(x, cos, sin, self.is_neox_style))

    def forward_kernel(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return _apply_rotary_emb(x, cos, sin, self.is_neox_style)

    def extra_repr(self) -> str:
        return f"is_neox_style={self.is_neox_style}, {super().extra_repr()}"


@CustomOp.register("qk_norm_rope")
class QKNormRope(CustomOp):
    """RMSNorm of every head of query and key, then rotary embedding, in one pass (Qwen3, Gemma 3).

    ``forward(positions, query, key, q_weight=None, k_weight=None)`` returns the turned query and
    key; shapes as for :class:`RotaryEmbedding`, weights ``[head_size]``. The weights stay in the
    model's own norm layers, so its state dict keeps their names. Equal bit for bit to the norms
    followed by the rotary layer.

    Args:
        rope: the rotary layer, a plain :class:`RotaryEmbedding`.
        eps: added to the mean square.
        weight_offset: added to the weights, 1 for Gemma.
        round_before_weight: round before the weight multiply (Llama) or once at the end (Gemma).

    Raises:
        TypeError: ``rope`` is another layer; an input is not a tensor of a dtype that it can have.
        ValueError: a shape does not fit, or a position is outside the table on the CPU.
    """

    ops = ("qk_norm_rope",)

    def __init__(
        self,
        rope: RotaryEmbedding,
        eps: float = 1e-6,
        weight_offset: float = 0.0,
        round_before_weight: bool = True,
        *,
        enabled: bool | None = None,
    ) -> None:
        if not isinstance(rope, RotaryEmbedding) or isinstance(rope, MRotaryEmbedding):
            raise TypeError(
                f"qk_norm_rope: rope must be a RotaryEmbedding, got {type(rope).__name__}"
            )
        _checks.epsilon("qk_norm_rope", eps)
        _checks.number("qk_norm_rope", "weight_offset", weight_offset)
        _checks.boolean("qk_norm_rope", "round_before_weight", round_before_weight)
        super().__init__(enabled=enabled)
        self.rope = rope
        self.eps = float(eps)
        self.weight_offset = float(weight_offset)
        self.round_before_weight = round_before_weight

    def _run(
        self,
        op: Callable[..., _Pair],
        positions: Tensor,
        query: Tensor,
        key: Tensor,
        q_weight: Tensor | None,
        k_weight: Tensor | None,
    ) -> _Pair:
        rope = self.rope
        before = (positions, query, key, rope.head_size, q_weight, k_weight, self.eps)
        after = (rope.is_neox_style, self.weight_offset, self.round_before_weight)
        try:
            return op(*before, rope.cos_sin_cache, *after)
        except ValueError:
            table = rope._table_elsewhere(query)
            if table is None:
                raise
        return op(*before, table, *after)

    def forward_native(
        self,
        positions: Tensor,
        query: Tensor,
        key: Tensor,
        q_weight: Tensor | None = None,
        k_weight: Tensor | None = None,
    ) -> _Pair:
        return self._run(_qk_norm_rope_native, positions, query, key, q_weight, k_weight)

    def forward_kernel(
        self,
        positions: Tensor,
        query: Tensor,
        key: Tensor,
        q_weight: Tensor | None = None,
        k_weight: Tensor | None = None,
    ) -> _Pair:
        return self._run(_qk_norm_rope, positions, query, key, q_weight, k_weight)

    def extra_repr(self) -> str:
        return f"eps={self.eps}, {super().extra_repr()}"
