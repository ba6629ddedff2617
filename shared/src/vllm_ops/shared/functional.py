# SPDX-License-Identifier: Apache-2.0
"""The functional API: the operators by name, for code without modules.

Every function takes the device's kernel where one is loaded and the native reference elsewhere,
keeps its inputs unchanged, and returns new contiguous tensors in the dtype of the input. Wrong
arguments raise ``TypeError`` or ``ValueError`` naming operator, argument, what is allowed and what
was given.
Gradients are those of the reference.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .ops import activation as _activation
from .ops import layernorm as _layernorm
from .ops import rotary as _rotary

_silu_and_mul: Callable[..., Tensor] = _activation.silu_and_mul.call
_gelu_and_mul: Callable[..., Tensor] = _activation.gelu_and_mul.call
_rms_norm: Callable[..., Tensor] = _layernorm.rms_norm.call
_rotary_embedding: Callable[..., tuple[Tensor, Tensor | None]] = _rotary.rotary_embedding.call


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
