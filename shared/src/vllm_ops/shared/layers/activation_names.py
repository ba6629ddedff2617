# SPDX-License-Identifier: Apache-2.0
"""Activations by the names that model configurations use in ``hidden_act`` and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ..policy import suggest
from .activation import (
    GELU,
    XIELU,
    FastGELU,
    FatreluAndMul,
    GeluAndMul,
    GELUTanh,
    NewGELU,
    QuickGELU,
    ReLUSquared,
    SiluAndMul,
    SwigluOAIAndMul,
)

_Build = Callable[[], nn.Module]


def _tanh_gelu_and_mul() -> nn.Module:
    return GeluAndMul("tanh")


ACTIVATIONS: Mapping[str, _Build] = {
    "gelu": GELU,
    "gelu_accurate": NewGELU,
    "gelu_fast": FastGELU,
    "gelu_new": NewGELU,
    "gelu_python": GELU,
    "gelu_python_tanh": GELUTanh,
    "gelu_pytorch_tanh": GELUTanh,
    "gelu_tanh": GELUTanh,
    "hardswish": nn.Hardswish,
    "leaky_relu": nn.LeakyReLU,
    "linear": nn.Identity,
    "mish": nn.Mish,
    "quick_gelu": QuickGELU,
    "relu": nn.ReLU,
    "relu2": ReLUSquared,
    "relu6": nn.ReLU6,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "swish": nn.SiLU,
    "tanh": nn.Tanh,
    "xielu": XIELU,
}
"""Pointwise activations. Those that torch already computes in one pass are torch's own."""

GATED_ACTIVATIONS: Mapping[str, _Build] = {
    "gelu": GeluAndMul,
    "gelu_fast": _tanh_gelu_and_mul,
    "gelu_new": _tanh_gelu_and_mul,
    "gelu_python": GeluAndMul,
    "gelu_pytorch_tanh": _tanh_gelu_and_mul,
    "gelu_tanh": _tanh_gelu_and_mul,
    "relu": FatreluAndMul,
    "silu": SiluAndMul,
    "swigluoai": SwigluOAIAndMul,
    "swish": SiluAndMul,
}
"""``act(gate) * up`` in one operator; ``swigluoai`` takes gate and up interleaved."""


def _find(function: str, known: Mapping[str, _Build], name: Any) -> nn.Module:
    if not isinstance(name, str):
        raise TypeError(f"{function}: name must be a str, got {type(name).__name__}")
    build = known.get(name.lower())
    if build is None:
        raise ValueError(
            f"{function}: unknown activation {name!r}{suggest(name.lower(), known) or '.'} "
            f"Known activations: {', '.join(sorted(known))}"
        )
    return build()


def get_act_fn(name: str) -> nn.Module:
    """A new module for a pointwise activation, ``x [...] -> [...]``.

    Args:
        name: as in a model configuration, in any case: ``gelu_new``, ``relu2``, ``silu``, ...

    Raises:
        TypeError: the name is not a str.
        ValueError: no such activation; the message lists those that exist.
    """
    return _find("get_act_fn", ACTIVATIONS, name)


def get_act_and_mul_fn(name: str) -> nn.Module:
    """A new module for a gated activation, ``x [..., 2d] -> [..., d]``, by the gate's activation.

    Args:
        name: the gate's activation, as in a model configuration, in any case: ``silu``, ...

    Raises:
        TypeError: the name is not a str.
        ValueError: no operator has that gate; the message lists those that exist.
    """
    return _find("get_act_and_mul_fn", GATED_ACTIVATIONS, name)
