# SPDX-License-Identifier: Apache-2.0
"""Cases of the rotary family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import inputs
from ..tolerances import ELEMENTWISE, NORM
from ._base import Build, Case, Device, Shape

ROWS = 2500

OPS = ("rotary_embedding", "multimodal_rotary_embedding", "apply_rotary_emb", "qk_norm_rope")


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

    def multimodal(self, dtype: torch.dtype, device: Device, *rest: Any) -> tuple[Any, ...]:
        """Three positions for each place; ``rest`` is the section and whether it interleaves."""
        _, query, key, head_size, cache, style = self.args(dtype, device)
        generator = torch.Generator().manual_seed(4)
        positions = torch.randint(0, ROWS, (3, *self.places), generator=generator)
        positions = positions.to(self.index).to(device)
        return positions, query, key, head_size, cache, *rest, style

    def given(
        self, dtype: torch.dtype, device: Device, angles_dtype: torch.dtype, broadcast: bool
    ) -> tuple[Any, ...]:
        """Cosines and sines for each place, or with ``broadcast`` for the last dimension of
        places."""
        x = inputs.make(
            (*self.places, self.heads, self.head_size), dtype, device, self.layout, seed=0
        )
        positions = self.positions(device)
        if broadcast:
            positions = positions[(0,) * (positions.dim() - 1)]
        rows = table(self.rotary_dim, ROWS, device)[positions.long()].to(angles_dtype)
        cos, sin = rows.chunk(2, dim=-1)
        if rows.numel() == 0:
            # torch.library.opcheck cannot copy an empty view with these strides.
            cos, sin = cos.new_empty(cos.shape), sin.new_empty(sin.shape)
        return x, cos, sin, self.style

    def normed(self, dtype: torch.dtype, device: Device, *rest: Any) -> tuple[Any, ...]:
        """With a norm of each head before; ``rest`` is the offset and the rounding order."""
        positions, query, key, head_size, cache, style = self.args(dtype, device)
        q_weight = inputs.make((head_size,), dtype, device, seed=5) * 0.1 + 1
        k_weight = inputs.make((head_size,), torch.float32, device, seed=6) * 0.1 + 1
        weights = (q_weight, k_weight)
        return positions, query, key, head_size, *weights, 1e-6, cache, style, *rest


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


def _multimodal_section(pairs: int) -> list[int]:
    """Unequal parts, so that no two axes can be mistaken for each other."""
    first, second = pairs // 4, pairs // 3
    return [first, second, pairs - first - second]


ANGLES: tuple[tuple[str, torch.dtype, bool], ...] = (
    ("", torch.float32, False),
    ("-bfloat16", torch.bfloat16, False),
    ("-broadcast", torch.float32, True),
)
"""dtype of the given cosines and sines, and whether they are the same for all sequences."""

NORMS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("", ()),
    ("-gemma", (1.0, False)),
)
"""What follows the style: weight_offset, round_before_weight."""


def _multimodal(sizes: Heads, interleaved: bool) -> Build:
    section = _multimodal_section(sizes.rotary_dim // 2)

    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        return sizes.multimodal(dtype, device, section, interleaved)

    return args


def _given(sizes: Heads, angles_dtype: torch.dtype, broadcast: bool) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        return sizes.given(dtype, device, angles_dtype, broadcast)

    return args


def _normed(sizes: Heads, rest: tuple[Any, ...]) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        return sizes.normed(dtype, device, *rest)

    return args


def _variant(label: str, sizes: Heads) -> Iterator[Case]:
    """Every operator once; its options only on the batched variant, where they all show."""
    has_options = len(sizes.places) > 1 and sizes.layout == "contiguous"
    yield Case("rotary_embedding", label, sizes.args, ELEMENTWISE)
    for tag, interleaved in (("sections", False), ("interleaved", True)):
        if has_options or interleaved != sizes.style:
            build = _multimodal(sizes, interleaved)
            yield Case("multimodal_rotary_embedding", f"{label}-{tag}", build, ELEMENTWISE)
    for tag, angles_dtype, broadcast in ANGLES if has_options else ANGLES[:1]:
        build = _given(sizes, angles_dtype, broadcast)
        yield Case("apply_rotary_emb", f"{label}{tag}", build, ELEMENTWISE)
    if sizes.key_heads is not None:
        for tag, rest in NORMS if has_options else NORMS[:1]:
            yield Case("qk_norm_rope", f"{label}{tag}", _normed(sizes, rest), NORM)


def cases() -> Iterator[Case]:
    found = [
        case
        for tag, sizes in VARIANTS
        for suffix, style in (("neox", True), ("gptj", False))
        for case in _variant(f"{tag}-{suffix}", Heads(**sizes, style=style))
    ]
    # One operator after the other, as everywhere in the table.
    yield from sorted(found, key=lambda case: OPS.index(case.op))
