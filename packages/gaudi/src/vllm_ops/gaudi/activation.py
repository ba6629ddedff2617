# SPDX-License-Identifier: Apache-2.0
"""Gated activations on the TPC; fp16, fp64 and empty tensors on the reference."""

from __future__ import annotations

from torch import Tensor
from vllm_ops.shared.reference import activation as reference

from . import _tpc


def silu_and_mul(x: Tensor) -> Tensor:
    return _tpc.silu_and_mul(x) if _tpc.takes(x) else reference.silu_and_mul(x).contiguous()


def gelu_and_mul(x: Tensor, approximate: str = "none") -> Tensor:
    if _tpc.takes(x):
        return _tpc.gelu_and_mul(x, approximate)
    return reference.gelu_and_mul(x, approximate).contiguous()
