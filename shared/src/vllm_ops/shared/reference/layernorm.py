# SPDX-License-Identifier: Apache-2.0
"""Norms over the last dimension."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ._dtype import widen


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
    normed = wide * torch.rsqrt(measured.pow(2).mean(-1, keepdim=True) + eps)
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
    return F.layer_norm(
        wide,
        x.shape[-1:],
        None if weight is None else weight.to(wide.dtype),
        None if bias is None else bias.to(wide.dtype),
        eps,
    ).to(x.dtype)


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
    normed = grouped * torch.rsqrt(grouped.pow(2).mean(-1, keepdim=True) + eps)
    normed = normed.reshape(x.shape)
    if weight is not None:
        normed = normed * weight.to(wide.dtype)
    if activated is not None and norm_before_gate:
        normed = normed * activated
    return normed.to(x.dtype)
