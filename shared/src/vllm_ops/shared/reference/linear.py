# SPDX-License-Identifier: Apache-2.0
"""Linear layers."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from ._dtype import widen


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None or x.dim() == 2:
        return F.linear(x, weight, bias)
    # Of other ranks, torch sometimes rounds the product before it adds the bias.
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return F.linear(rows, weight, bias).reshape(*x.shape[:-1], weight.shape[0])


def linear_int8(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    wide = widen(x)
    out = F.linear(wide, weight.to(wide.dtype)) * scale
    if bias is not None:
        out = out + bias
    return out.to(x.dtype)
