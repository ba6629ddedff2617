# SPDX-License-Identifier: Apache-2.0
"""Tensors in every layout that the operators take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

LAYOUTS = ("contiguous", "sliced", "transposed", "expanded", "unaligned", "strided_last")
"""
contiguous    as allocated
sliced        the first columns of a wider tensor, as from splitting a fused projection
transposed    ``[B, S, H, D]`` seen as ``[B, H, S, D]``: the two before the last swapped
expanded      the first dimension has stride 0
unaligned     starts one element past an allocation
strided_last  the last dimension has stride 2
"""


SPECIALS = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 88.5, -88.5, 1e4, -1e4)
"""With the largest and the smallest numbers of a dtype, what :func:`specials` draws from."""


def specials(
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    seed: int = 0,
    largest: bool = True,
) -> Tensor:
    """Standard normal values, every third one replaced by infinity, NaN, zero, or an extreme of the
    dtype.

    Args:
        largest: whether the extremes include the largest numbers.
    """
    x = make(shape, torch.float64, "cpu", seed=seed)
    info = torch.finfo(dtype)
    extremes: tuple[float, ...] = (info.tiny, -info.tiny, info.smallest_normal / 4)
    if largest:
        extremes += (info.max, info.min)
    drawn = torch.tensor((*SPECIALS, *extremes), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed + 1)
    which = torch.randint(0, len(drawn), x.shape, generator=generator)
    chosen = torch.randint(0, 3, x.shape, generator=generator) == 0
    return torch.where(chosen, drawn[which], x).to(dtype).to(device)


def integers(
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    layout: str = "contiguous",
    seed: int = 0,
) -> Tensor:
    """All integers from -127 to 127, the same on every device; layouts as in :func:`make`."""
    generator = torch.Generator().manual_seed(seed)

    def values(size: Sequence[int]) -> Tensor:
        drawn = torch.randint(-127, 128, tuple(size), generator=generator)
        return drawn.to(dtype).to(device)

    return _laid_out(shape, layout, values)


def make(
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    layout: str = "contiguous",
    seed: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Standard normal values times ``scale``, the same on every device.

    Raises:
        ValueError: no such layout, or the shape has too few dimensions for it.
    """
    generator = torch.Generator().manual_seed(seed)

    def values(size: Sequence[int]) -> Tensor:
        wide = torch.randn(tuple(size), generator=generator, dtype=torch.float64) * scale
        return wide.to(dtype).to(device)

    return _laid_out(shape, layout, values)


def _laid_out(
    shape: Sequence[int], layout: str, values: Callable[[Sequence[int]], Tensor]
) -> Tensor:
    shape = list(shape)
    if layout == "contiguous":
        return values(shape)
    if layout == "sliced":
        return values([*shape[:-1], shape[-1] + 24])[..., : shape[-1]]
    if layout == "transposed" and len(shape) >= 3:
        return values([*shape[:-3], shape[-2], shape[-3], shape[-1]]).transpose(-2, -3)
    if layout == "expanded" and len(shape) >= 2:
        return values([1, *shape[1:]]).expand(shape)
    if layout == "unaligned":
        count = 1
        for size in shape:
            count *= size
        return values([count + 1])[1:].view(shape)
    if layout == "strided_last":
        return values([*shape[:-1], 2 * shape[-1]])[..., ::2]
    raise ValueError(f"layout must be one of {', '.join(LAYOUTS)} and fit {shape}, got {layout!r}")
