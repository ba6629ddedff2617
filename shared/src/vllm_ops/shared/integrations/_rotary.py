# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding in the attention layers of Hugging Face models.

A model computes ``(cos, sin)`` once per forward in a rotary module, and every attention layer
passes them to the function ``apply_rotary_pos_emb`` of its Python module. Here the rotary module
returns ``(index, table)`` instead: the same cosines and sines in fp32 in the layout of
``rotary_embedding``, one row per position of the batch, and the row numbers. Frequencies stay the
model's own, so every rope type works, those that change with the length included. An attention
layer runs its class's own code with ``apply_rotary_pos_emb`` bound to the operator; no global name
is changed. Either kind still takes what the other returns when it runs natively.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..ops import rotary as _ops
from ._adopt import Adopted
from ._rebind import innermost, rebind

FUNCTION = "apply_rotary_pos_emb"
_Pair = tuple[Tensor, Tensor]


def is_table(pair: Any) -> bool:
    """Whether a rotary module returned ``(index, table)`` rather than ``(cos, sin)``."""
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and isinstance(pair[0], Tensor)
        and not pair[0].is_floating_point()
    )


# ---- the rotary module ----


def _first_half(x: Tensor) -> Tensor:
    return x[..., : x.shape[-1] // 2]


def _every_other(x: Tensor) -> Tensor:
    return x[..., ::2]


def _whole(x: Tensor) -> Tensor:
    return x


class FusedRotary(Adopted):
    """A rotary module that returns ``(index [B or 1, S], table [rows, rotary_dim])``."""

    name = "rotary_embedding"
    ops = ("rotary_embedding",)

    distinct: Callable[[Tensor], Tensor]

    @classmethod
    def as_table(cls, cos: Tensor, sin: Tensor) -> _Pair:
        """``(cos, sin)`` of a rotary module as ``(index, table)``."""
        table = torch.cat((cls.distinct(cos), cls.distinct(sin)), -1).flatten(0, -2)
        index = torch.arange(table.shape[0], device=table.device).view(cos.shape[:-1])
        return index, table

    def forward_kernel(self, x: Tensor, *args: Any, **kwargs: Any) -> _Pair:
        # The dtype of the first argument is the dtype of what comes back.
        wide = x.new_empty(0, dtype=torch.float32)
        return self.as_table(*self.forward_native(wide, *args, **kwargs))


class FusedRotaryHalves(FusedRotary):
    """``cos`` is ``[..., rotary_dim]``, its halves equal."""

    distinct = staticmethod(_first_half)


class FusedRotaryPairs(FusedRotary):
    """``cos`` is ``[..., rotary_dim]``, every value twice in a row."""

    distinct = staticmethod(_every_other)


class FusedRotaryPlain(FusedRotary):
    """``cos`` is ``[..., rotary_dim / 2]``."""

    distinct = staticmethod(_whole)


# ---- the attention layer ----


def _apply_function(original: type[nn.Module]) -> Callable[..., _Pair]:
    """The ``apply_rotary_pos_emb`` that the class's forward calls."""
    function = innermost(original.forward)
    if function is None or FUNCTION not in function.__code__.co_names:
        raise TypeError(f"{original.__name__}.forward does not call {FUNCTION}")
    found: Callable[..., _Pair] = function.__globals__[FUNCTION]
    return found


def make_apply(
    native: Callable[..., _Pair], turn: Callable[..., Any], is_neox_style: bool
) -> Callable[..., _Pair]:
    """``apply_rotary_pos_emb`` on ``(index, table)``; on ``(cos, sin)`` the model's own."""

    def apply_rotary_pos_emb(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> _Pair:
        """q and k are ``[B, heads, S, D]``, or ``[B, S, heads, D]`` with ``unsqueeze_dim=2``."""
        if cos.is_floating_point():
            return native(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        index = cos.expand(q.shape[0], -1)
        heads_first = unsqueeze_dim == 1
        if heads_first:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        q, k = turn(index, q, k, q.shape[-1], sin, is_neox_style)
        return (q.transpose(1, 2), k.transpose(1, 2)) if heads_first else (q, k)

    return apply_rotary_pos_emb


class FusedAttention(Adopted):
    """An attention layer that turns query and key with ``rotary_embedding``."""

    name = "rotary_embedding"
    ops = ("rotary_embedding",)
    is_neox_style: bool

    forward_reference: Callable[..., Any]

    @classmethod
    def namespace(cls, original: type[nn.Module]) -> dict[str, Any]:
        def with_turn(turn: Callable[..., Any]) -> types.FunctionType:
            native = _apply_function(original)
            apply = make_apply(native, turn, cls.is_neox_style)
            return rebind(original.forward, **{FUNCTION: apply})

        return {
            "forward_kernel": with_turn(_ops.rotary_embedding.call),
            "forward_reference": with_turn(_ops.rotary_embedding.native),
        }

    def forward_native(self, *args: Any, **kwargs: Any) -> Any:
        given = kwargs["position_embeddings"] if "position_embeddings" in kwargs else args[1]
        if is_table(given):
            return self.forward_reference(*args, **kwargs)
        return super().forward_native(*args, **kwargs)


class FusedNeoxAttention(FusedAttention):
    is_neox_style = True


class FusedGptjAttention(FusedAttention):
    is_neox_style = False
