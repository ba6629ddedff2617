# SPDX-License-Identifier: Apache-2.0
"""The kernels. Each takes the arguments of its operator's schema, checked, with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from vllm_ops.shared.ops import register_kernel

from . import calls, dispatch_key


def silu_and_mul(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    gate = x[..., :half].to(torch.promote_types(x.dtype, torch.float32))
    silu = (gate / (1 + torch.exp(-gate))).to(x.dtype)
    return (silu * x[..., half:]).contiguous()


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> Tensor:
    wide = x.double()
    mean_square = wide[..., :variance_size].square().mean(-1, keepdim=True)
    # The contract has it in fp32, where squares can vanish.
    square = mean_square.to(torch.promote_types(x.dtype, torch.float32)) + eps
    normed = torch.where(square == 0, 0.0, wide * square.double().rsqrt())
    if weight is not None:
        if round_before_weight:
            normed = normed.to(x.dtype).double()
        normed = normed * (weight.double() + weight_offset)
    return normed.to(x.dtype).contiguous()


def rms_norm_(x: Tensor, *args: Any) -> None:
    x.copy_(rms_norm(x, *args))


def fused_add_rms_norm(x: Tensor, residual: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    total = (x + residual).contiguous()
    return rms_norm(total, *args), total


KERNELS: dict[str, Callable[..., Any]] = {
    kernel.__name__: kernel for kernel in (silu_and_mul, rms_norm, rms_norm_, fused_add_rms_norm)
}


def _counted(op: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        calls[op] += 1
        return kernel(*args)

    return run


def register() -> None:
    for op, kernel in KERNELS.items():
        register_kernel(op, dispatch_key, _counted(op, kernel))
