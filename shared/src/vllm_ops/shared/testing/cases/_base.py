# SPDX-License-Identifier: Apache-2.0
"""What a case is, and the shapes and layouts that every operator family runs over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..tolerances import Tolerance

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

Shape = tuple[int, ...]
Device = torch.device | str
Build = Callable[[torch.dtype, Device], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """One call of one operator.

    Attributes:
        op: the operator's name.
        id: what is special about the case; unique per operator.
        args: builds the positional arguments for a dtype and a device.
        tolerance: what the contract allows.
    """

    op: str
    id: str
    args: Build
    tolerance: Tolerance

    def __str__(self) -> str:
        return f"{self.op}-{self.id}"


SHAPES: tuple[Shape, ...] = (
    (8,),
    (1, 2),
    (7, 769),
    (3, 46),
    (2, 1234),
    (5, 3420),
    (2, 3, 3584),
    (2, 5, 4, 64),
    (33, 128),
    (1, 4096),
    (0, 64),
    (3, 0, 8),
)
"""Rank 1 to 4, odd sizes, sizes that no vector width divides, no rows."""

STRIDED: tuple[tuple[Shape, str], ...] = (
    ((6, 200), "sliced"),
    ((2, 25, 3, 48), "transposed"),
    ((4, 72), "expanded"),
    ((3, 65), "unaligned"),
    ((3, 40), "strided_last"),
)


def layouts() -> Iterator[tuple[Shape, str, str]]:
    """Every shape with its layout and its id."""
    for shape in SHAPES:
        yield shape, "contiguous", describe(shape)
    for shape, layout in STRIDED:
        yield shape, layout, f"{describe(shape)}-{layout}"


def describe(shape: Shape) -> str:
    return "x".join(map(str, shape))
