# SPDX-License-Identifier: Apache-2.0
"""RMS norms: FusedRMSNorm, and one TPC kernel for the sum with a residual."""

from __future__ import annotations

import torch
from torch import Tensor
from vllm_ops.shared.reference import layernorm as reference

from . import _hpex, _tpc

SMALLEST = torch.finfo(torch.float32).tiny


def why_native(x: Tensor, eps: float, variance_size: int | None) -> str | None:
    """Why a call goes to the reference, or None where a fused operator can keep the contract."""
    if x.dtype == torch.float64:
        return "the fused operators have no float64"
    if x.numel() == 0:
        return "there is nothing to do"
    if variance_size is not None and variance_size != x.shape[-1]:
        return "the fused operators take the mean over the whole row"
    if eps < SMALLEST:
        return "a row of zeros must give zeros, and the fused operators give NaN without an eps"
    return None


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> Tensor:
    if why_native(x, eps, variance_size) is not None:
        return reference.rms_norm(
            x, weight, eps, variance_size, weight_offset, round_before_weight
        ).contiguous()
    scale = None
    if weight is not None:
        scale = weight.float()
        if weight_offset != 0.0:
            scale = scale + weight_offset
    if scale is None or not round_before_weight or x.dtype == torch.float32:
        return _hpex.rms_norm(x, scale, eps).to(x.dtype)
    # The rounding before the weight lies inside the fused operator, so its weight is one and ours
    # follows: an elementwise chain, which the graph compiler fuses.
    return (_hpex.rms_norm(x, None, eps).to(x.dtype).float() * scale).to(x.dtype)


def _one_pass(
    x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, variance_size: int | None
) -> bool:
    tensors = (x, residual) if weight is None else (x, residual, weight)
    return (
        why_native(x, eps, variance_size) is None
        and _tpc.takes(*tensors)
        and x.shape[-1] <= _tpc.MAX_COLUMNS[x.dtype]
    )


def fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    if _one_pass(x, residual, weight, eps, variance_size):
        return _tpc.fused_add_rms_norm(x, residual, weight, eps, weight_offset, round_before_weight)
    total = (x + residual).contiguous()
    normed = rms_norm(total, weight, eps, variance_size, weight_offset, round_before_weight)
    return normed, total


def rms_norm_(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> None:
    x.copy_(rms_norm(x, weight, eps, variance_size, weight_offset, round_before_weight))


def fused_add_rms_norm_(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> None:
    normed, total = fused_add_rms_norm(
        x, residual, weight, eps, variance_size, weight_offset, round_before_weight
    )
    x.copy_(normed)
    residual.copy_(total)
