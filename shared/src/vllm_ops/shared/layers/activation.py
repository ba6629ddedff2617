# SPDX-License-Identifier: Apache-2.0
"""Activation layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor

from ..custom_op import CustomOp
from ..ops import activation as _ops
from ..ops._define import Op

_silu_and_mul: Callable[[Tensor], Tensor] = _ops.silu_and_mul.call
_gelu_and_mul: Callable[[Tensor, str], Tensor] = _ops.gelu_and_mul.call


@CustomOp.register("silu_and_mul")
class SiluAndMul(CustomOp):
    """SwiGLU: ``x [..., 2d] -> silu(x[..., :d]) * x[..., d:] [..., d]`` (arXiv:2002.05202).

    Raises:
        TypeError: x is not a floating point tensor.
        ValueError: the last dimension is odd.
    """

    ops = ("silu_and_mul",)

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, _ops.silu_and_mul.checked_native(x))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _silu_and_mul(x)


@CustomOp.register("gelu_and_mul")
class GeluAndMul(CustomOp):
    """GEGLU: ``x [..., 2d] -> gelu(x[..., :d]) * x[..., d:] [..., d]`` (arXiv:2002.05202).

    Args:
        approximate: ``"none"`` for the erf form, ``"tanh"`` for the tanh form.

    Raises:
        TypeError: x is not a floating point tensor.
        ValueError: another ``approximate``, or an odd last dimension.
    """

    ops = ("gelu_and_mul",)

    def __init__(self, approximate: str = "none", *, enabled: bool | None = None) -> None:
        _ops.check_approximate("gelu_and_mul", approximate)
        super().__init__(enabled=enabled)
        self.approximate = approximate

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, _ops.gelu_and_mul.checked_native(x, self.approximate))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _gelu_and_mul(x, self.approximate)


class _Pointwise(CustomOp):
    """``x [...] -> [...]``, fp32 inside, one rounding.

    Raises:
        TypeError: x is not a floating point tensor.
    """

    op: Op

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.op.checked_native(x))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.op.call(x))


@CustomOp.register("gelu_new")
class NewGELU(_Pointwise):
    """The tanh form of GELU as in GPT-2 (arXiv:1606.08415), free of its cancellation."""

    ops = ("gelu_new",)
    op = _ops.gelu_new


@CustomOp.register("gelu_fast")
class FastGELU(_Pointwise):
    """``x * sigmoid(2u)``, ``u = 0.7978845608 x (1 + 0.044715 x^2)``."""

    ops = ("gelu_fast",)
    op = _ops.gelu_fast


@CustomOp.register("quick_gelu")
class QuickGELU(_Pointwise):
    """``x * sigmoid(1.702 x)``, as in CLIP."""

    ops = ("quick_gelu",)
    op = _ops.quick_gelu
