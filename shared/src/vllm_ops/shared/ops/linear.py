# SPDX-License-Identifier: Apache-2.0
"""The linear operator: schema, checks and fake."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..reference import linear as reference
from . import _checks as check
from ._define import define


def _check(x: Any, weight: Any, bias: Any = None) -> None:
    check.activation_input("linear", "x", x)
    check.floating("linear", "weight", weight)
    check.same_device("linear", "weight", weight, "x", x)
    check.same_dtype("linear", "weight", weight, x)
    if weight.dim() != 2:
        raise ValueError(f"linear: weight must have 2 dimensions, got {weight.dim()}")
    if x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"linear: x must have {weight.shape[1]} elements in the last dimension, "
            f"got {x.shape[-1]}"
        )
    if bias is not None:
        check.floating("linear", "bias", bias)
        check.same_dtype("linear", "bias", bias, x)
        check.vector("linear", "bias", bias, weight.shape[0], "x", x)


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


linear = define(
    "linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
    native=reference.linear,
    check=_check,
    fake=_fake,
)

__all__ = ["linear"]
