# SPDX-License-Identifier: Apache-2.0
"""The linear operators: schemas, checks and fakes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..reference import linear as reference
from . import _checks as check
from ._define import define


def _check(x: Any, weight: Any, bias: Any = None) -> None:
    check.activation_input("linear", "x", x)
    check.floating("linear", "weight", weight)
    check.same_device("linear", "weight", weight, "x", x)
    check.same_dtype("linear", "weight", weight, x)
    _matrix("linear", weight, x)
    _bias("linear", bias, weight, x)


def _matrix(op: str, weight: Tensor, x: Tensor) -> None:
    """``weight [n, k]`` for ``x [..., k]``."""
    if weight.dim() != 2:
        raise ValueError(f"{op}: weight must have 2 dimensions, got {weight.dim()}")
    if x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"{op}: x must have {weight.shape[1]} elements in the last dimension, got {x.shape[-1]}"
        )


def _bias(op: str, bias: Any, weight: Tensor, x: Tensor) -> None:
    if bias is not None:
        check.floating(op, "bias", bias)
        check.same_dtype(op, "bias", bias, x)
        check.vector(op, "bias", bias, weight.shape[0], "x", x)


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


linear = define(
    "linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
    native=reference.linear,
    check=_check,
    fake=_fake,
)


def _check_int8(x: Any, weight: Any, scale: Any, bias: Any = None) -> None:
    op = "linear_int8"
    check.activation_input(op, "x", x)
    check.exactly(op, "weight", weight, torch.int8)
    check.same_device(op, "weight", weight, "x", x)
    _matrix(op, weight, x)
    check.exactly(op, "scale", scale, torch.float32)
    check.vector(op, "scale", scale, weight.shape[0], "x", x)
    _bias(op, bias, weight, x)


def _fake_int8(x: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    return _fake(x, weight, bias)


linear_int8 = define(
    "linear_int8(Tensor x, Tensor weight, Tensor scale, Tensor? bias=None) -> Tensor",
    native=reference.linear_int8,
    check=_check_int8,
    fake=_fake_int8,
)

__all__ = ["linear", "linear_int8"]
