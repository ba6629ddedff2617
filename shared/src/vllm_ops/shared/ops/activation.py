# SPDX-License-Identifier: Apache-2.0
"""Activation operators: schemas, checks and fakes of the gated and the pointwise ones."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..reference import activation as reference
from . import _checks as check
from ._define import Op, define


def _gated(op: str, x: Any) -> None:
    check.activation_input(op, "x", x)
    if x.shape[-1] % 2:
        raise ValueError(f"{op}: x must have an even last dimension, got {x.shape[-1]}")


def _half(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def _same(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _check_silu_and_mul(x: Any) -> None:
    _gated("silu_and_mul", x)


silu_and_mul = define(
    "silu_and_mul(Tensor x) -> Tensor",
    native=reference.silu_and_mul,
    check=_check_silu_and_mul,
    fake=_half,
)


def _check_mul_and_silu(x: Any) -> None:
    _gated("mul_and_silu", x)


mul_and_silu = define(
    "mul_and_silu(Tensor x) -> Tensor",
    native=reference.mul_and_silu,
    check=_check_mul_and_silu,
    fake=_half,
)


def check_approximate(op: str, approximate: Any) -> None:
    if approximate not in ("none", "tanh"):
        raise ValueError(f'{op}: approximate must be "none" or "tanh", got {approximate!r}')


def _check_gelu_and_mul(x: Any, approximate: Any = "none") -> None:
    _gated("gelu_and_mul", x)
    check_approximate("gelu_and_mul", approximate)


gelu_and_mul = define(
    'gelu_and_mul(Tensor x, str approximate="none") -> Tensor',
    native=reference.gelu_and_mul,
    check=_check_gelu_and_mul,
    fake=_half,
)


def _check_fatrelu_and_mul(x: Any, threshold: Any = 0.0) -> None:
    _gated("fatrelu_and_mul", x)
    check.number("fatrelu_and_mul", "threshold", threshold)


fatrelu_and_mul = define(
    "fatrelu_and_mul(Tensor x, float threshold=0.0) -> Tensor",
    native=reference.fatrelu_and_mul,
    check=_check_fatrelu_and_mul,
    fake=_half,
)


def check_limit(op: str, limit: Any) -> None:
    check.number(op, "limit", limit)
    if not limit > 0:
        raise ValueError(f"{op}: limit must be above 0, got {limit}")


def _check_silu_and_mul_with_clamp(x: Any, limit: Any) -> None:
    _gated("silu_and_mul_with_clamp", x)
    check_limit("silu_and_mul_with_clamp", limit)


silu_and_mul_with_clamp = define(
    "silu_and_mul_with_clamp(Tensor x, float limit) -> Tensor",
    native=reference.silu_and_mul_with_clamp,
    check=_check_silu_and_mul_with_clamp,
    fake=_half,
)


def _check_swigluoai_and_mul(x: Any, alpha: Any = 1.702, limit: Any = 7.0) -> None:
    _gated("swigluoai_and_mul", x)
    check.number("swigluoai_and_mul", "alpha", alpha)
    check_limit("swigluoai_and_mul", limit)


swigluoai_and_mul = define(
    "swigluoai_and_mul(Tensor x, float alpha=1.702, float limit=7.0) -> Tensor",
    native=reference.swigluoai_and_mul,
    check=_check_swigluoai_and_mul,
    fake=_half,
)


def _define_pointwise(name: str) -> Op:
    def check_pointwise(x: Any) -> None:
        check.floating(name, "x", x)

    return define(
        f"{name}(Tensor x) -> Tensor",
        native=getattr(reference, name),
        check=check_pointwise,
        fake=_same,
    )


gelu = _define_pointwise("gelu")
gelu_tanh = _define_pointwise("gelu_tanh")
gelu_new = _define_pointwise("gelu_new")
gelu_fast = _define_pointwise("gelu_fast")
quick_gelu = _define_pointwise("quick_gelu")
relu2 = _define_pointwise("relu2")


def _check_xielu(x: Any, alpha_p: Any, alpha_n: Any, beta: Any = 0.5, eps: Any = -1e-6) -> None:
    check.floating("xielu", "x", x)
    for name, value in (("alpha_p", alpha_p), ("alpha_n", alpha_n)):
        check.floating("xielu", name, value)
        if value.numel() != 1:
            raise ValueError(f"xielu: {name} must have 1 element, got {value.numel()}")
        check.same_device("xielu", name, value, "x", x)
    check.number("xielu", "beta", beta)
    check.number("xielu", "eps", eps)


xielu = define(
    "xielu(Tensor x, Tensor alpha_p, Tensor alpha_n, float beta=0.5, float eps=-1e-06) -> Tensor",
    native=reference.xielu,
    check=_check_xielu,
    fake=_same,
)

__all__ = [name for name, value in list(globals().items()) if isinstance(value, Op)]
