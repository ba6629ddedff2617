# SPDX-License-Identifier: Apache-2.0
"""Norms over the last dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..ops import layernorm as _ops
from ._scalars import check_scalars

__all__ = [
    "fused_add_rms_norm",
    "fused_add_rms_norm_",
    "layer_norm",
    "rms_norm",
    "rms_norm_",
    "rms_norm_gated",
]

_rms_norm: Callable[..., Tensor] = _ops.rms_norm.call
_rms_norm_: Callable[..., None] = _ops.rms_norm_.call
_fused_add_rms_norm: Callable[..., tuple[Tensor, Tensor]] = _ops.fused_add_rms_norm.call
_fused_add_rms_norm_: Callable[..., None] = _ops.fused_add_rms_norm_.call
_layer_norm: Callable[..., Tensor] = _ops.layer_norm.call
_rms_norm_gated: Callable[..., Tensor] = _ops.rms_norm_gated.call


def _check(op: str, eps: Any, variance_size: Any, offset: Any, order: Any) -> None:
    if type(variance_size) is int and type(order) is bool and type(eps) is type(offset) is float:
        return
    check_scalars(
        op,
        eps=eps,
        variance_size=variance_size,
        weight_offset=offset,
        round_before_weight=order,
    )


def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> Tensor:
    """RMSNorm (arXiv:1910.07467): ``x * rsqrt(mean(x^2) + eps) * (weight + weight_offset)``.

    Args:
        x: ``[..., hidden]``.
        weight: ``[hidden]``, or None for a norm without one.
        eps: not negative.
        variance_size: take the mean over the first ``variance_size`` elements only.
        weight_offset: added to the weight, in fp32; 1 for Gemma.
        round_before_weight: round to the dtype of ``x`` before the weight is multiplied, as in
        Llama; False to round once at the end, as in Gemma.

    Returns:
        ``[..., hidden]``.

    Raises:
        TypeError: ``x`` or ``weight`` is not a floating point tensor; a number is none.
        ValueError: ``weight`` has another size or device; ``eps`` is negative; ``variance_size``
        is not between 1 and hidden; ``x`` has no dimension.
    """
    if (
        type(eps) is not float
        or variance_size is not None
        or type(weight_offset) is not float
        or type(round_before_weight) is not bool
    ):
        _check("rms_norm", eps, variance_size, weight_offset, round_before_weight)
    return _rms_norm(x, weight, eps, variance_size, weight_offset, round_before_weight)


def rms_norm_(
    x: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> None:
    """:func:`rms_norm`, written into ``x``.

    Args:
        x: ``[..., hidden]``; becomes the norm, whatever its strides.
        weight, eps, variance_size, weight_offset, round_before_weight: as for :func:`rms_norm`.

    Raises:
        RuntimeError: an argument requires a gradient, outside of ``torch.no_grad``.
        TypeError, ValueError: as for :func:`rms_norm`.
    """
    if (
        type(eps) is not float
        or variance_size is not None
        or type(weight_offset) is not float
        or type(round_before_weight) is not bool
    ):
        _check("rms_norm_", eps, variance_size, weight_offset, round_before_weight)
    _rms_norm_(x, weight, eps, variance_size, weight_offset, round_before_weight)


def fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    """``s = x + residual`` and its :func:`rms_norm`; equal bit for bit to the two in sequence.

    Args:
        x: ``[..., hidden]``.
        residual: the shape, dtype and device of ``x``. It may be ``x``, or share its memory.
        weight, eps, variance_size, weight_offset, round_before_weight: as for :func:`rms_norm`.

    Returns:
        ``rms_norm(s)`` and ``s``, both ``[..., hidden]``.

    Raises:
        TypeError: as for :func:`rms_norm`; ``residual`` has another dtype than ``x``.
        ValueError: as for :func:`rms_norm`; ``residual`` has another shape or device.
    """
    if (
        type(eps) is not float
        or variance_size is not None
        or type(weight_offset) is not float
        or type(round_before_weight) is not bool
    ):
        _check("fused_add_rms_norm", eps, variance_size, weight_offset, round_before_weight)
    return _fused_add_rms_norm(
        x, residual, weight, eps, variance_size, weight_offset, round_before_weight
    )


def fused_add_rms_norm_(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    variance_size: int | None = None,
    weight_offset: float = 0.0,
    round_before_weight: bool = True,
) -> None:
    """:func:`fused_add_rms_norm`, written into ``x`` and ``residual``.

    Args:
        x: ``[..., hidden]``; becomes the norm, whatever its strides.
        residual: the shape, dtype and device of ``x``; becomes the sum. It may overlap ``x``: the
            result is computed first, and ``residual`` written last.
        weight, eps, variance_size, weight_offset, round_before_weight: as for :func:`rms_norm`.

    Raises:
        RuntimeError: an argument requires a gradient, outside of ``torch.no_grad``.
        TypeError, ValueError: as for :func:`fused_add_rms_norm`.
    """
    if (
        type(eps) is not float
        or variance_size is not None
        or type(weight_offset) is not float
        or type(round_before_weight) is not bool
    ):
        _check("fused_add_rms_norm_", eps, variance_size, weight_offset, round_before_weight)
    _fused_add_rms_norm_(
        x, residual, weight, eps, variance_size, weight_offset, round_before_weight
    )


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Layer normalisation (arXiv:1607.06450), with the biased variance.

    Args:
        x: ``[..., hidden]``.
        weight: ``[hidden]`` or None.
        bias: ``[hidden]`` or None.
        eps: not negative.

    Returns:
        ``[..., hidden]``, rounded once.

    Raises:
        TypeError: ``x``, ``weight`` or ``bias`` is not a floating point tensor; ``eps`` no number.
        ValueError: ``weight`` or ``bias`` has another size or device; ``eps`` is negative; ``x``
        has no dimension.
    """
    if type(eps) is not float:
        check_scalars("layer_norm", eps=eps)
    return _layer_norm(x, weight, bias, eps)


def rms_norm_gated(
    x: Tensor,
    gate: Tensor | None,
    weight: Tensor | None,
    eps: float,
    group_size: int | None = None,
    norm_before_gate: bool = True,
) -> Tensor:
    """The gated RMSNorm of Mamba-2 (arXiv:2405.21060): ``n(x) * silu(gate)``, or with
    ``norm_before_gate=False`` ``n(x * silu(gate))``, where ``n`` is RMSNorm over each group.

    Args:
        x: ``[..., hidden]``.
        gate: the shape and device of ``x``, or None for ``n(x)``.
        weight: ``[hidden]`` or None.
        eps: not negative.
        group_size: divides hidden; hidden by default.
        norm_before_gate: which of the two.

    Returns:
        ``[..., hidden]``, rounded once.

    Raises:
        TypeError: ``x``, ``gate`` or ``weight`` is not a floating point tensor; a number is none.
        ValueError: a shape, size or device does not fit; ``group_size`` does not divide hidden;
        ``eps`` is negative; ``x`` has no dimension.
    """
    if (
        type(eps) is not float
        or (group_size is not None and type(group_size) is not int)
        or type(norm_before_gate) is not bool
    ):
        check_scalars(
            "rms_norm_gated", eps=eps, group_size=group_size, norm_before_gate=norm_before_gate
        )
    return _rms_norm_gated(x, gate, weight, eps, group_size, norm_before_gate)
