# SPDX-License-Identifier: Apache-2.0
"""Cases of the rotary family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import inputs
from ..tolerances import ELEMENTWISE
from ._base import Case, Device, Shape

ROWS = 2500


def table(rotary_dim: int, rows: int, device: Device) -> Tensor:
    """A plain rotary table: base 10,000."""
    inverse = 10000.0 ** -(torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * inverse
    return torch.cat((angles.cos(), angles.sin()), -1).float().to(device)


@dataclass(frozen=True)
class Heads:
    """The sizes of one rotary call; ``key_heads=None`` for a call without a key."""

    places: Shape = (5,)
    heads: int = 4
    key_heads: int | None = 2
    head_size: int = 64
    rotary_dim: int = 64
    index: torch.dtype = torch.int64
    layout: str = "contiguous"
    style: bool = True

    def positions(self, device: Device) -> Tensor:
        generator = torch.Generator().manual_seed(3)
        return torch.randint(0, ROWS, self.places, generator=generator).to(self.index).to(device)

    def tensor(self, heads: int | None, dtype: torch.dtype, device: Device, seed: int) -> Any:
        """``P + [heads * head_size]`` for a rank-1 P, else ``P + [heads, head_size]``."""
        if heads is None:
            return None
        last = (heads * self.head_size,) if len(self.places) == 1 else (heads, self.head_size)
        return inputs.make((*self.places, *last), dtype, device, self.layout, seed)

    def args(self, dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        return (
            self.positions(device),
            self.tensor(self.heads, dtype, device, 0),
            self.tensor(self.key_heads, dtype, device, 1),
            self.head_size,
            table(self.rotary_dim, ROWS, device),
            self.style,
        )


VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("flat", {}),
    ("one-token", {"places": (1,), "heads": 8, "head_size": 128, "rotary_dim": 128}),
    ("int32", {"index": torch.int32}),
    ("no-key", {"key_heads": None}),
    ("partial", {"places": (7,), "heads": 3, "head_size": 256}),
    ("odd-head", {"heads": 3, "key_heads": 1, "head_size": 46, "rotary_dim": 46}),
    ("partial-odd", {"heads": 3, "key_heads": 1, "head_size": 46, "rotary_dim": 10}),
    ("batched", {"places": (2, 5)}),
    ("sliced", {"layout": "sliced"}),
    ("transposed", {"places": (2, 5), "layout": "transposed"}),
    ("unaligned", {"layout": "unaligned", "head_size": 32, "rotary_dim": 32}),
    ("empty", {"places": (0,)}),
)


def cases() -> Iterator[Case]:
    for tag, sizes in VARIANTS:
        for suffix, style in (("neox", True), ("gptj", False)):
            build = Heads(**sizes, style=style).args
            yield Case("rotary_embedding", f"{tag}-{suffix}", build, ELEMENTWISE)
