# SPDX-License-Identifier: Apache-2.0
"""Gated activations ``[..., 2d] -> [..., d]`` and pointwise activations ``[...] -> [...]``."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..ops import activation as _ops
from ._scalars import check_scalars

__all__ = [
    "fatrelu_and_mul",
    "gelu",
    "gelu_and_mul",
    "gelu_fast",
    "gelu_new",
    "gelu_tanh",
    "mul_and_silu",
    "quick_gelu",
    "relu2",
    "silu_and_mul",
    "silu_and_mul_with_clamp",
    "swigluoai_and_mul",
    "xielu",
]

_Call = Callable[..., Tensor]

_silu_and_mul: _Call = _ops.silu_and_mul.call
_mul_and_silu: _Call = _ops.mul_and_silu.call
_gelu_and_mul: _Call = _ops.gelu_and_mul.call
_fatrelu_and_mul: _Call = _ops.fatrelu_and_mul.call
_silu_and_mul_with_clamp: _Call = _ops.silu_and_mul_with_clamp.call
_swigluoai_and_mul: _Call = _ops.swigluoai_and_mul.call
_gelu: _Call = _ops.gelu.call
_gelu_tanh: _Call = _ops.gelu_tanh.call
_gelu_new: _Call = _ops.gelu_new.call
_gelu_fast: _Call = _ops.gelu_fast.call
_quick_gelu: _Call = _ops.quick_gelu.call
_relu2: _Call = _ops.relu2.call
_xielu: _Call = _ops.xielu.call


def silu_and_mul(x: Tensor) -> Tensor:
    """SwiGLU (arXiv:2002.05202): ``silu(x[..., :d]) * x[..., d:]``.

    Args:
        x: ``[..., 2d]``.

    Returns:
        ``[..., d]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
        ValueError: the last dimension is odd, or there is none.
    """
    return _silu_and_mul(x)


def mul_and_silu(x: Tensor) -> Tensor:
    """``x[..., :d] * silu(x[..., d:])``.

    Args:
        x: ``[..., 2d]``.

    Returns:
        ``[..., d]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
        ValueError: the last dimension is odd, or there is none.
    """
    return _mul_and_silu(x)


def gelu_and_mul(x: Tensor, approximate: str = "none") -> Tensor:
    """GEGLU (arXiv:2002.05202): ``gelu(x[..., :d]) * x[..., d:]``.

    Args:
        x: ``[..., 2d]``.
        approximate: ``"none"`` for the erf form of GELU, ``"tanh"`` for the tanh form.

    Returns:
        ``[..., d]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
        ValueError: another ``approximate``; the last dimension is odd, or there is none.
    """
    return _gelu_and_mul(x, approximate)


def fatrelu_and_mul(x: Tensor, threshold: float = 0.0) -> Tensor:
    """``a * x[..., d:]`` where ``a`` is ``x[..., :d]`` above the threshold, and 0 elsewhere.

    Args:
        x: ``[..., 2d]``.
        threshold: a number.

    Returns:
        ``[..., d]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor, ``threshold`` not a number.
        ValueError: the last dimension is odd, or there is none.
    """
    if type(threshold) is not float:
        check_scalars("fatrelu_and_mul", threshold=threshold)
    return _fatrelu_and_mul(x, threshold)


def silu_and_mul_with_clamp(x: Tensor, limit: float) -> Tensor:
    """``silu(min(x[..., :d], limit)) * clamp(x[..., d:], -limit, limit)``.

    Args:
        x: ``[..., 2d]``.
        limit: above 0.

    Returns:
        ``[..., d]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor, ``limit`` not a number.
        ValueError: ``limit`` is not above 0; the last dimension is odd, or there is none.
    """
    if type(limit) is not float:
        check_scalars("silu_and_mul_with_clamp", limit=limit)
    return _silu_and_mul_with_clamp(x, limit)


def swigluoai_and_mul(x: Tensor, alpha: float = 1.702, limit: float = 7.0) -> Tensor:
    """The clamped SwiGLU of gpt-oss, on interleaved halves: ``(u + 1) * g * sigmoid(alpha * g)``
    with ``g = min(x[..., ::2], limit)`` and ``u = clamp(x[..., 1::2], -limit, limit)``.

    Args:
        x: ``[..., 2d]``.
        alpha: a number.
        limit: above 0.

    Returns:
        ``[..., d]``, rounded once.

    Raises:
        TypeError: ``x`` is not a floating point tensor, ``alpha`` or ``limit`` not a number.
        ValueError: ``limit`` is not above 0; the last dimension is odd, or there is none.
    """
    if type(alpha) is not float or type(limit) is not float:
        check_scalars("swigluoai_and_mul", alpha=alpha, limit=limit)
    return _swigluoai_and_mul(x, alpha, limit)


def gelu(x: Tensor) -> Tensor:
    """``x * Phi(x)``, the erf form (arXiv:1606.08415).

    Args:
        x: ``[...]``.

    Returns:
        ``[...]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
    """
    return _gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`` (arXiv:1606.08415), without its
    cancellation for negative ``x``.

    Args:
        x: ``[...]``.

    Returns:
        ``[...]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
    """
    return _gelu_tanh(x)


def gelu_new(x: Tensor) -> Tensor:
    """:func:`gelu_tanh`, under the name that GPT-2 configurations use.

    Args:
        x: ``[...]``.

    Returns:
        ``[...]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
    """
    return _gelu_new(x)


def gelu_fast(x: Tensor) -> Tensor:
    """``x * sigmoid(2u)`` with ``u = 0.7978845608 x (1 + 0.044715 x^2)``.

    Args:
        x: ``[...]``.

    Returns:
        ``[...]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
    """
    return _gelu_fast(x)


def quick_gelu(x: Tensor) -> Tensor:
    """``x * sigmoid(1.702 x)``, as in CLIP.

    Args:
        x: ``[...]``.

    Returns:
        ``[...]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
    """
    return _quick_gelu(x)


def relu2(x: Tensor) -> Tensor:
    """``relu(x)^2`` (arXiv:2109.08668).

    Args:
        x: ``[...]``.

    Returns:
        ``[...]``.

    Raises:
        TypeError: ``x`` is not a floating point tensor.
    """
    return _relu2(x)


def xielu(
    x: Tensor, alpha_p: Tensor, alpha_n: Tensor, beta: float = 0.5, eps: float = -1e-6
) -> Tensor:
    """xIELU (arXiv:2411.13010): with ``p = softplus(alpha_p)`` and
    ``n = beta + softplus(alpha_n)``, ``p x^2 + beta x`` above 0 and
    ``n (expm1(min(x, eps)) - x) + beta x`` elsewhere.

    Args:
        x: ``[...]``.
        alpha_p: one element.
        alpha_n: one element.
        beta: a number.
        eps: a number.

    Returns:
        ``[...]``.

    Raises:
        TypeError: ``x``, ``alpha_p`` or ``alpha_n`` is not a floating point tensor, ``beta`` or
        ``eps`` not a number.
        ValueError: ``alpha_p`` or ``alpha_n`` has not one element, or is on another device.
    """
    if type(beta) is not float or type(eps) is not float:
        check_scalars("xielu", beta=beta, eps=eps)
    return _xielu(x, alpha_p, alpha_n, beta, eps)
