# SPDX-License-Identifier: Apache-2.0
"""The functional API: the operators by name, for code without modules.

Every function takes the device's kernel where one is loaded and the native reference elsewhere,
keeps its inputs unchanged, and returns new contiguous tensors in the dtype of the input. Wrong
arguments raise ``TypeError`` or ``ValueError`` naming operator, argument, what is allowed and what
was given.
Gradients are those of the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from .ops import activation as _activation
from .ops import layernorm as _layernorm
from .ops import rotary as _rotary

_silu_and_mul: Callable[..., Tensor] = _activation.silu_and_mul.call
_gelu_and_mul: Callable[..., Tensor] = _activation.gelu_and_mul.call
_rms_norm: Callable[..., Tensor] = _layernorm.rms_norm.call
_rotary_embedding: Callable[..., tuple[Tensor, Tensor | None]] = _rotary.rotary_embedding.call
_rotary_embedding_: Callable[..., None] = _rotary.rotary_embedding_.call
_multimodal: Callable[..., tuple[Tensor, Tensor | None]] = _rotary.multimodal_rotary_embedding.call
_apply_rotary_emb: Callable[..., Tensor] = _rotary.apply_rotary_emb.call
_qk_norm_rope: Callable[..., tuple[Tensor, Tensor]] = _rotary.qk_norm_rope.call


def silu_and_mul(x: Tensor) -> Tensor:
    """``silu(x[..., :d]) * x[..., d:]`` for ``x [..., 2d]``; returns ``[..., d]``."""
    return _silu_and_mul(x)


def gelu_and_mul(x: Tensor, approximate: str = "none") -> Tensor:
    """``gelu(x[..., :d]) * x[..., d:]`` for ``x [..., 2d]``; ``approximate`` is "none" or
    "tanh"."""
    return _gelu_and_mul(x, approximate)


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> Tensor:
    """RMSNorm (arXiv:1910.07467) over the last dimension."""
    return _rms_norm(x, weight, eps, variance_size, weight_offset, round_before_weight)


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Rotary position embedding from an fp32 table; returns the turned query and key."""
    return _rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox_style)


def rotary_embedding_(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox_style: bool = True,
) -> None:
    """``rotary_embedding`` written into ``query`` and ``key``, whatever their strides. No
    gradient."""
    _rotary_embedding_(positions, query, key, head_size, cos_sin_cache, is_neox_style)


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
    """Rotary embedding whose pairs take their position from one of three axes.

    ``positions`` is ``[3] + P``: temporal, height and width. ``mrope_section`` says how many pairs
    each axis turns, in that order, or alternating with ``mrope_interleaved``.
    """
    return _multimodal(
        positions,
        query,
        key,
        head_size,
        cos_sin_cache,
        list(mrope_section),
        mrope_interleaved,
        is_neox_style,
    )


def apply_rotary_emb(x: Tensor, cos: Tensor, sin: Tensor, is_neox_style: bool = True) -> Tensor:
    """Rotary embedding of ``x [..., places, num_heads, head_size]`` by given ``cos`` and ``sin``,
    ``[..., places, rotary_dim / 2]`` or ``[places, rotary_dim / 2]``, in any floating dtype."""
    return _apply_rotary_emb(x, cos, sin, is_neox_style)


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
    """RMSNorm of each head, then rotary embedding; equal bit for bit to the two in sequence.

    ``q_weight`` and ``k_weight`` are ``[head_size]`` or None."""
    return _qk_norm_rope(
        positions,
        query,
        key,
        head_size,
        q_weight,
        k_weight,
        eps,
        cos_sin_cache,
        is_neox_style,
        weight_offset,
        round_before_weight,
    )
