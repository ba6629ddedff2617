# SPDX-License-Identifier: Apache-2.0
"""Linear layers."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..ops import linear as _ops

__all__ = ["linear", "linear_int8"]

_linear: Callable[..., Tensor] = _ops.linear.call
_linear_int8: Callable[..., Tensor] = _ops.linear_int8.call


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


def linear_int8(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """``(x weight^T) * scale + bias`` with an int8 weight, accumulated in fp32 and rounded once.

    Args:
        x: ``[..., k]``.
        weight: ``[n, k]`` int8, as from :func:`vllm_ops.shared.quantize_int8`.
        scale: ``[n]`` fp32, what one step of the weight is worth, per output channel.
        bias: ``[n]``, in the dtype of ``x``.

    Returns:
        ``[..., n]``. The gradient reaches ``x``, ``scale`` and ``bias``.

    Raises:
        TypeError: an argument is no tensor of its dtype.
        ValueError: ``weight`` does not have two dimensions; a size or a device does not fit; ``x``
        has no dimension.
    """
    return _linear_int8(x, weight, scale, bias)
