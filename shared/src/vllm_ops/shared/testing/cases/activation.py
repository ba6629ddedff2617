# SPDX-License-Identifier: Apache-2.0
"""Cases of the gated and the pointwise activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .. import inputs
from ..tolerances import CANCELLING, ELEMENTWISE
from ._base import Build, Case, Device, describe, layouts

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

Make = Callable[[torch.dtype, Device], Tensor]


def _values(*shape: int, layout: str = "contiguous", scale: float = 1.0) -> Make:
    return lambda dtype, device: inputs.make(shape, dtype, device, layout, scale=scale)


def _specials(*shape: int, largest: bool = True) -> Make:
    return lambda dtype, device: inputs.specials(shape, dtype, device, largest=largest)


def _tail(dtype: torch.dtype, device: Device) -> Tensor:
    """Where the activations approach 0 and 1, and beyond."""
    return torch.linspace(-16, 16, 4098, dtype=torch.float64).view(3, -1).to(dtype).to(device)


EXTRA: tuple[tuple[str, Make, Make], ...] = (
    ("4x0", _values(4, 0), _values(4, 0)),
    ("5x1", _values(5, 1), _values(5, 2)),
    ("tail", _tail, _tail),
    ("large", _values(9, 520, scale=1e4), _values(9, 520, scale=1e4)),
    ("tiny", _values(9, 520, scale=1e-4), _values(9, 520, scale=1e-4)),
    ("specials", _specials(33, 128), _specials(33, 128)),
)
"""Id, input of a pointwise operator, input of a gated one."""


def _with(make: Make, *extra: Any) -> Build:
    return lambda dtype, device: (make(dtype, device), *extra)


def _xielu(make: Make, *extra: Any) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        return (
            make(dtype, device),
            torch.tensor([0.55], dtype=dtype, device=device),
            torch.tensor([0.3], dtype=torch.float32, device=device),
            *extra,
        )

    return args


def cases() -> Iterator[Case]:
    for name, extra in GATED:
        tag = "".join(f"-{value}" for value in extra)
        for shape, layout, label in layouts():
            make = _values(*shape[:-1], 2 * shape[-1], layout=layout)
            yield Case(name, label + tag, _with(make, *extra), ELEMENTWISE)
        for label, _, make in EXTRA:
            yield Case(name, label + tag, _with(make, *extra), ELEMENTWISE)
    single = [(label, _values(*shape, layout=layout)) for shape, layout, label in layouts()]
    single += [(label, make) for label, make, _ in EXTRA]
    for name in POINTWISE:
        for label, make in single:
            yield Case(name, label, _with(make), ELEMENTWISE)
    # Whether its terms overflow before their sum does depends on fused multiply-adds.
    single[-1] = ("specials", _specials(33, 128, largest=False))
    for label, make in single:
        yield Case("xielu", label, _xielu(make), CANCELLING)
    yield Case(
        "xielu",
        f"{describe((33, 128))}-beta-eps",
        _xielu(_values(33, 128), 0.25, -1e-3),
        CANCELLING,
    )
