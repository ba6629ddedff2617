# SPDX-License-Identifier: Apache-2.0
"""Weights in fewer bits."""

from __future__ import annotations

import torch
from torch import Tensor

from .ops import _checks as check

__all__ = ["quantize_int8"]

_MOST = 127


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The int8 weight and the scale of ``functional.linear_int8`` for a floating point weight.

    Symmetric, per output channel: the largest magnitude of a row becomes 127, the rest is rounded
    to the nearest step. So an element changes by at most half of ``scale``, a 254th of the largest
    in its row (where that is a normal fp32 number, 1e-36 or more).

    Args:
        weight: ``[n, k]``.

    Returns:
        ``[n, k]`` int8 and ``[n]`` fp32.

    Raises:
        TypeError: ``weight`` is not a floating point tensor.
        ValueError: it does not have two dimensions, holds a NaN, an infinity or a number beyond
        fp32, or has no values (device meta).
    """
    check.floating("quantize_int8", "weight", weight)
    if weight.dim() != 2:
        raise ValueError(f"quantize_int8: weight must have 2 dimensions, got {weight.dim()}")
    if weight.device.type == "meta":
        raise ValueError("quantize_int8: weight must have values, got one on the device meta")
    with torch.no_grad():
        wide = weight.float()
        if not bool(torch.isfinite(wide).all()):
            raise ValueError(
                "quantize_int8: weight must be finite in float32, got a NaN or an infinity"
            )
        largest = wide.abs().amax(1) if weight.shape[1] else wide.new_zeros(weight.shape[0])
        # Never 0: a channel of zeros, or of the smallest numbers that there are, divides by it.
        scale = (largest / _MOST).clamp_min(torch.finfo(torch.float32).tiny)
        return (wide / scale[:, None]).round().to(torch.int8), scale
