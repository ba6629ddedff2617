# SPDX-License-Identifier: Apache-2.0
"""Habana's fused operators, looked up once, each with the shape rules that it asks for.

The rules are those of the public callers of these functions: rank 3, contiguous, one dtype for all
tensors, cosines and sines as wide as the heads. Both run in fp32: where the half-precision forms
round is not documented, and the contract fixes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_NORM = "habana_frameworks.torch.hpex.normalization"
_ROTARY = "habana_frameworks.torch.hpex.kernels"

_fused_rms_norm: Callable[..., Tensor]
_apply_rotary_pos_emb: Callable[..., Tensor]
_modes: dict[bool, Any]


def _find(module: str, path: str) -> Any:
    """``path`` inside ``module``, which must be there and not None."""
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # whatever a damaged installation raises
        raise ImportError(
            f"{module} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise ImportError(f"{module} has no {path}")
    return found


def require() -> None:
    """Look the operators up.

    Raises:
        ImportError: one of them is missing; the message names it.
    """
    global _fused_rms_norm, _apply_rotary_pos_emb, _modes
    fused = _find(_NORM, "FusedRMSNorm.apply")
    rotary = _find(_ROTARY, "apply_rotary_pos_emb")
    for what, function in (("FusedRMSNorm.apply", fused), ("apply_rotary_pos_emb", rotary)):
        if not callable(function):
            raise ImportError(f"habana_frameworks: {what} is not a function")
    modes = {
        True: _find(_ROTARY, "RotaryPosEmbeddingMode.BLOCKWISE"),
        False: _find(_ROTARY, "RotaryPosEmbeddingMode.PAIRWISE"),
    }
    _fused_rms_norm, _apply_rotary_pos_emb, _modes = fused, rotary, modes


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """``x * rsqrt(mean(x^2) + eps) * weight`` over the last dimension, in fp32.

    ``x`` is of any shape with at least one element, ``weight`` fp32 ``[x.shape[-1]]``.
    """
    rows = x.float().reshape(1, -1, x.shape[-1]).contiguous()
    if weight is None:
        weight = torch.ones(x.shape[-1], dtype=torch.float32, device=x.device)
    return _fused_rms_norm(rows, weight.contiguous(), float(eps)).reshape(x.shape)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, is_neox_style: bool) -> Tensor:
    """Turn all of ``x [tokens, heads, 2 n]`` by fp32 ``cos`` and ``sin [tokens, 1, n]``, in fp32.

    BLOCKWISE pairs the halves of a head (NeoX), PAIRWISE neighbours (GPT-J).
    """
    if is_neox_style:
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    else:
        cos, sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    return _apply_rotary_pos_emb(x.float().contiguous(), cos, sin, None, 0, _modes[is_neox_style])
