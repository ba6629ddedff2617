# SPDX-License-Identifier: Apache-2.0
"""Gated activations ``[..., 2d] -> [..., d]`` and pointwise activations.

The gated ones round the activation to the input dtype before the product, as eager torch does when
a model writes ``act(gate) * up``. The pointwise ones round once.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ._dtype import widen


def _gelu_tanh(x: Tensor) -> Tensor:
    """``0.5 x (1 + tanh(u)) = x sigmoid(2u)``: the left side cancels below -4, the right does
    not."""
    inner = x * x * x * 0.044715 + x
    return x * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * inner)


def silu_and_mul(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def mul_and_silu(x: Tensor) -> Tensor:
    up, gate = x.chunk(2, dim=-1)
    return up * F.silu(gate)


def gelu_and_mul(x: Tensor, approximate: str = "none") -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return (gelu(gate) if approximate == "none" else gelu_tanh(gate)) * up


def fatrelu_and_mul(x: Tensor, threshold: float = 0.0) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.threshold(gate, threshold, 0.0) * up


def silu_and_mul_with_clamp(x: Tensor, limit: float) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def swigluoai_and_mul(x: Tensor, alpha: float = 1.702, limit: float = 7.0) -> Tensor:
    gate = widen(x[..., ::2]).clamp(max=limit)
    up = widen(x[..., 1::2]).clamp(-limit, limit)
    return ((up + 1) * (gate * torch.sigmoid(alpha * gate))).to(x.dtype)


def gelu(x: Tensor) -> Tensor:
    """``x Phi(x)``, ``Phi(x) = erfc(-x / sqrt(2)) / 2``. The usual ``1 + erf`` cancels: in fp32 it
    is 17 % off at -5, 45 bf16 ulps, and 0 below -5.6."""
    wide = widen(x)
    return (wide * (0.5 * torch.erfc(wide * -math.sqrt(0.5)))).to(x.dtype)


def gelu_tanh(x: Tensor) -> Tensor:
    return _gelu_tanh(widen(x)).to(x.dtype)


def gelu_new(x: Tensor) -> Tensor:
    return gelu_tanh(x)


def gelu_fast(x: Tensor) -> Tensor:
    wide = widen(x)
    inner = 0.7978845608 * wide * (1.0 + 0.044715 * wide * wide)
    return (wide * torch.sigmoid(2.0 * inner)).to(x.dtype)


def quick_gelu(x: Tensor) -> Tensor:
    wide = widen(x)
    return (wide * torch.sigmoid(1.702 * wide)).to(x.dtype)


def relu2(x: Tensor) -> Tensor:
    return F.relu(widen(x)).square().to(x.dtype)


def xielu(
    x: Tensor, alpha_p: Tensor, alpha_n: Tensor, beta: float = 0.5, eps: float = -1e-6
) -> Tensor:
    wide = widen(x)
    positive = F.softplus(alpha_p.to(wide.dtype)).reshape(())
    negative = (beta + F.softplus(alpha_n.to(wide.dtype))).reshape(())
    limit = torch.full((), eps, dtype=wide.dtype, device=x.device)
    result = torch.where(
        wide > 0,
        positive * wide * wide + beta * wide,
        (torch.expm1(torch.minimum(wide, limit)) - wide) * negative + beta * wide,
    )
    return result.to(x.dtype)
