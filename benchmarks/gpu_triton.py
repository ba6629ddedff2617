# SPDX-License-Identifier: Apache-2.0
"""Triton versions of three operators, for benchmarks/gpu.py to compare with: one program a row, the
whole row in registers, as most Triton kernels of this kind are written."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _silu_and_mul(x, out, d, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    mask = column < d
    gate = tl.load(x + row * 2 * d + column, mask, 0.0).to(tl.float32)
    up = tl.load(x + row * 2 * d + d + column, mask, 0.0)
    activated = (gate / (1.0 + tl.exp(-gate))).to(up.dtype)
    tl.store(out + row * d + column, activated * up, mask)


@triton.jit
def _rms_norm(x, weight, out, d, eps, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    mask = column < d
    value = tl.load(x + row * d + column, mask, 0.0)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / d + eps)
    normed = (wide * scale).to(value.dtype) * tl.load(weight + column, mask, 0.0)
    tl.store(out + row * d + column, normed, mask)


def silu_and_mul(x: Tensor) -> Tensor:
    rows, d = x.numel() // x.shape[-1], x.shape[-1] // 2
    out = torch.empty((*x.shape[:-1], d), dtype=x.dtype, device=x.device)
    block = min(1024, triton.next_power_of_2(d))
    _silu_and_mul[(rows, triton.cdiv(d, block))](x, out, d, block=block)
    return out


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out = torch.empty_like(x)
    rows, d = x.numel() // x.shape[-1], x.shape[-1]
    block = triton.next_power_of_2(d)
    _rms_norm[(rows,)](x, weight, out, d, eps, block=block, num_warps=8)
    return out


VERSIONS = {"silu_and_mul": silu_and_mul, "rms_norm": rms_norm}
