# SPDX-License-Identifier: Apache-2.0
"""Cases of the gated and the pointwise activations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .. import inputs
from ..tolerances import ELEMENTWISE
from ._base import Build, Case, Device, Shape, describe, layouts

GATED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("silu_and_mul", ()),
    ("mul_and_silu", ()),
    ("gelu_and_mul", ("none",)),
    ("gelu_and_mul", ("tanh",)),
    ("fatrelu_and_mul", (0.0,)),
    ("fatrelu_and_mul", (0.25,)),
    ("silu_and_mul_with_clamp", (1.5,)),
    ("swigluoai_and_mul", (1.702, 7.0)),
    ("swigluoai_and_mul", (1.5, 1.0)),
)
"""Operators with the arguments that follow ``x``."""

POINTWISE = ("gelu", "gelu_tanh", "gelu_new", "gelu_fast", "quick_gelu", "relu2")

EMPTY_COLUMNS: Shape = (4, 0)


def _one_input(shape: Shape, layout: str, *extra: Any) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        return (inputs.make(shape, dtype, device, layout), *extra)

    return args


def _xielu(shape: Shape, layout: str) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        return (
            inputs.make(shape, dtype, device, layout),
            torch.tensor([0.55], dtype=dtype, device=device),
            torch.tensor([0.3], dtype=torch.float32, device=device),
        )

    return args


def cases() -> Iterator[Case]:
    for name, extra in GATED:
        tag = "".join(f"-{value}" for value in extra)
        for shape, layout, label in layouts():
            doubled = (*shape[:-1], 2 * shape[-1])
            yield Case(name, label + tag, _one_input(doubled, layout, *extra), ELEMENTWISE)
        columns = _one_input(EMPTY_COLUMNS, "contiguous", *extra)
        yield Case(name, describe(EMPTY_COLUMNS) + tag, columns, ELEMENTWISE)
    for name in POINTWISE:
        for shape, layout, label in layouts():
            yield Case(name, label, _one_input(shape, layout), ELEMENTWISE)
    for shape, layout, label in layouts():
        yield Case("xielu", label, _xielu(shape, layout), ELEMENTWISE)
