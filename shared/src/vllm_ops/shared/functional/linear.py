# SPDX-License-Identifier: Apache-2.0
"""The linear layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..ops import linear as _ops

__all__ = ["linear"]

_linear: Callable[..., Tensor] = _ops.linear.call


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x weight^T + bias``, accumulated in fp32 and rounded once.

    Args:
        x: ``[..., k]``.
        weight: ``[n, k]``, in the dtype of ``x``.
        bias: ``[n]``, in the dtype of ``x``.

    Returns:
        ``[..., n]``.

    Raises:
        TypeError: an argument is not a floating point tensor, or not in the dtype of ``x``.
        ValueError: ``weight`` does not have two dimensions; a size or a device does not fit; ``x``
        has no dimension.
    """
    return _linear(x, weight, bias)
