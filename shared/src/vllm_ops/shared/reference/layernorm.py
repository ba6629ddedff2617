# SPDX-License-Identifier: Apache-2.0
"""Norms over the last dimension."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ._dtype import widen

_SMALLEST = torch.finfo(torch.float32).tiny


def _inverse_root(mean_square: Tensor, eps: float) -> Tensor:
    """``rsqrt(mean_square + eps)``, and 0 where that sum is 0: a row of zeros gives zeros, not NaN.

    Only an eps that may vanish in fp32 needs the guard. It sits before the root, so that the
    gradient of such a row is 0 too.
    """
    total = mean_square + eps
    if eps < _SMALLEST:
        total = total.masked_fill(total == 0, math.inf)
    return torch.rsqrt(total)


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> Tensor:
    wide = widen(x)
    measured = wide if variance_size is None else wide[..., :variance_size]
    normed = wide * _inverse_root(measured.pow(2).mean(-1, keepdim=True), eps)
    if weight is not None:
        if round_before_weight:
            normed = normed.to(x.dtype).to(wide.dtype)
        scale = weight.to(wide.dtype)
        normed = normed * (scale if weight_offset == 0.0 else scale + weight_offset)
    return normed.to(x.dtype)


def fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm(total, weight, eps, variance_size, weight_offset, round_before_weight), total


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    wide = widen(x)
    scale = None if weight is None else weight.to(wide.dtype)
    shift = None if bias is None else bias.to(wide.dtype)
    if eps >= _SMALLEST:
        return F.layer_norm(wide, x.shape[-1:], scale, shift, eps).to(x.dtype)
    centred = wide - wide.mean(-1, keepdim=True)
    normed = centred * _inverse_root(centred.pow(2).mean(-1, keepdim=True), eps)
    if scale is not None:
        normed = normed * scale
    if shift is not None:
        normed = normed + shift
    return normed.to(x.dtype)


def rms_norm_gated(
    x: Tensor,
    gate: Tensor | None,
    weight: Tensor | None,
    eps: float,
    group_size: int | None = None,
    norm_before_gate: bool = True,
) -> Tensor:
    wide = widen(x)
    activated = None if gate is None else F.silu(gate.to(wide.dtype))
    if activated is not None and not norm_before_gate:
        wide = wide * activated
    size = x.shape[-1] if group_size is None else group_size
    grouped = wide.unflatten(-1, (-1, size)) if size else wide
    normed = grouped * _inverse_root(grouped.pow(2).mean(-1, keepdim=True), eps)
    normed = normed.reshape(x.shape)
    if weight is not None:
        normed = normed * weight.to(wide.dtype)
    if activated is not None and norm_before_gate:
        normed = normed * activated
    return normed.to(x.dtype)
