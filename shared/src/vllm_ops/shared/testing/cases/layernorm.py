# SPDX-License-Identifier: Apache-2.0
"""Cases of the norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .. import inputs
from ..tolerances import NORM
from ._base import Build, Case, Device, Shape, layouts

EPS = 1e-5
SAME = "same"
"""A weight in the dtype of the input."""


def weight(size: int, dtype: torch.dtype, device: Device, seed: int = 5) -> Tensor:
    return inputs.make((size,), dtype, device, seed=seed) * 0.1 + 1


def _rms(
    shape: Shape,
    layout: str = "contiguous",
    *rest: Any,
    residual: bool,
    residual_layout: str | None = None,
    weight_dtype: torch.dtype | str | None = SAME,
    weight_step: int = 1,
) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        tensors = [inputs.make(shape, dtype, device, layout)]
        if residual:
            other = layout if residual_layout is None else residual_layout
            tensors.append(inputs.make(shape, dtype, device, other, seed=1))
        wanted = dtype if weight_dtype == SAME else weight_dtype
        scale = None
        if isinstance(wanted, torch.dtype):
            scale = weight(shape[-1] * weight_step, wanted, device)[::weight_step]
        return (*tensors, scale, EPS, *rest)

    return args


def _unusual(kind: str, *, residual: bool, eps: float = EPS) -> Build:
    """Rows that stress the sum of squares."""

    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        shape = (7, 520)
        tensors = [unusual(kind, shape, dtype, device)]
        if residual:
            tensors.append(unusual(kind, shape, dtype, device, seed=1))
        return (*tensors, weight(shape[-1], dtype, device), eps)

    return args


def unusual(
    kind: str, shape: Shape, dtype: torch.dtype, device: Device = "cpu", seed: int = 0
) -> Tensor:
    """Inputs by the name of what is unusual about them.

    ``large``: of magnitude 1e4, whose squares overflow fp16. ``tiny``: of magnitude 1e-4, below the
    root of eps. ``outliers``: one value in two hundred is 300 times the rest. ``zero_row``: the
    second row is 0. ``vanishing``: of magnitude 1e-30, whose squares are 0 in fp32. ``specials``:
    infinities, NaN and extremes of the dtype.
    """
    if kind == "large":
        return inputs.make(shape, dtype, device, seed=seed, scale=1e4).clamp(-6e4, 6e4)
    if kind == "tiny":
        return inputs.make(shape, dtype, device, seed=seed, scale=1e-4)
    if kind == "vanishing":
        return inputs.make(shape, dtype, device, seed=seed, scale=1e-30)
    if kind == "specials":
        return inputs.specials(shape, dtype, device, seed)
    x = inputs.make(shape, dtype, device, seed=seed)
    if kind == "zero_row":
        x[1] = 0
    if kind == "outliers":
        generator = torch.Generator().manual_seed(seed + 7)
        x = torch.where((torch.rand(shape, generator=generator) < 0.005).to(device), x * 300, x)
    return x


UNUSUAL: tuple[tuple[str, float], ...] = (
    ("large", EPS),
    ("tiny", EPS),
    ("outliers", EPS),
    ("zero_row", EPS),
    ("zero_row", 0.0),
    ("vanishing", 0.0),
    ("specials", EPS),
)
"""Kind and eps."""

OPTIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("gemma", (None, 1.0, False)),
    ("offset", (None, 1.0, True)),
    ("single-rounding", (None, 0.0, False)),
    ("variance60", (60,)),
)
"""What follows eps: variance_size, weight_offset, round_before_weight."""

SMALL: tuple[Shape, ...] = ((5, 1), (4, 0))
"""One column, and none."""


def _rms_norms() -> Iterator[Case]:
    for name, residual in (
        ("rms_norm", False),
        ("fused_add_rms_norm", True),
        ("rms_norm_", False),
        ("fused_add_rms_norm_", True),
    ):
        for shape, layout, label in layouts():
            if name[-1] == "_" and layout == "expanded":
                continue  # rows that share memory cannot be written to
            yield Case(name, label, _rms(shape, layout, residual=residual), NORM)
        for shape in SMALL:
            yield Case(name, f"{shape[0]}x{shape[1]}", _rms(shape, residual=residual), NORM)
        for tag, rest in OPTIONS:
            build = _rms((5, 100), "contiguous", *rest, residual=residual)
            yield Case(name, f"5x100-{tag}", build, NORM)
        for tag, weight_dtype in (
            ("no-weight", None),
            ("weight-float32", torch.float32),
            ("weight-bfloat16", torch.bfloat16),
        ):
            build = _rms((2, 3, 100), residual=residual, weight_dtype=weight_dtype)
            yield Case(name, f"2x3x100-{tag}", build, NORM)
        build = _rms((6, 200), residual=residual, weight_step=2)
        yield Case(name, "6x200-weight-strided", build, NORM)
        if residual:
            build = _rms((6, 200), residual=True, residual_layout="sliced")
            yield Case(name, "6x200-residual-sliced", build, NORM)
        for kind, eps in UNUSUAL:
            build = _unusual(kind, residual=residual, eps=eps)
            yield Case(name, f"{kind}-eps{eps:g}", build, NORM)


def _layer_norm(
    shape: Shape, layout: str = "contiguous", *, scale: bool = True, shift: bool = True
) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        x = inputs.make(shape, dtype, device, layout)
        size = shape[-1]
        return (
            x,
            weight(size, dtype, device) if scale else None,
            weight(size, torch.float32, device, 6) - 1 if shift else None,
            EPS,
        )

    return args


def _layer_norm_unusual(kind: str, eps: float) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        x = unusual(kind, (7, 520), dtype, device)
        return x, weight(520, dtype, device), weight(520, dtype, device, 6) - 1, eps

    return args


def _layer_norms() -> Iterator[Case]:
    name = "layer_norm"
    for shape, layout, label in layouts():
        yield Case(name, label, _layer_norm(shape, layout), NORM)
    for shape in SMALL:
        yield Case(name, f"{shape[0]}x{shape[1]}", _layer_norm(shape), NORM)
    for tag, scale, shift in (
        ("no-affine", False, False),
        ("no-bias", True, False),
        ("no-weight", False, True),
    ):
        build = _layer_norm((5, 100), scale=scale, shift=shift)
        yield Case(name, f"5x100-{tag}", build, NORM)
    for kind, eps in UNUSUAL:
        yield Case(name, f"{kind}-eps{eps:g}", _layer_norm_unusual(kind, eps), NORM)


def _gated(
    shape: Shape,
    layout: str = "contiguous",
    *rest: Any,
    gate_layout: str | None = None,
    gate_dtype: torch.dtype | None = None,
) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        other = layout if gate_layout is None else gate_layout
        return (
            inputs.make(shape, dtype, device, layout),
            inputs.make(shape, gate_dtype or dtype, device, other, seed=1),
            weight(shape[-1], dtype, device),
            EPS,
            *rest,
        )

    return args


def _gated_unusual(kind: str, eps: float, *rest: Any) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        x = unusual(kind, (7, 520), dtype, device)
        gate = inputs.make((7, 520), dtype, device, seed=1)
        return x, gate, weight(520, dtype, device), eps, *rest

    return args


def _bare(*rest: Any) -> Build:
    return lambda dtype, device: (inputs.make((5, 100), dtype, device), None, None, EPS, *rest)


def _gated_norms() -> Iterator[Case]:
    name = "rms_norm_gated"
    for tag, before in (("before", True), ("after", False)):
        for shape, layout, label in layouts():
            group_size = shape[-1] // 2 if shape[-1] % 2 == 0 else None
            build = _gated(shape, layout, group_size or None, before)
            yield Case(name, f"{label}-{tag}", build, NORM)
        for shape in SMALL:
            build = _gated(shape, "contiguous", None, before)
            yield Case(name, f"{shape[0]}x{shape[1]}-{tag}", build, NORM)
        for group_size in (1, 7, 13):
            build = _gated((3, 91), "contiguous", group_size, before)
            yield Case(name, f"3x91-groups-of-{group_size}-{tag}", build, NORM)
        build = _gated((6, 200), "contiguous", 50, before, gate_layout="sliced")
        yield Case(name, f"6x200-gate-sliced-{tag}", build, NORM)
        build = _gated((6, 200), "contiguous", 50, before, gate_dtype=torch.float32)
        yield Case(name, f"6x200-gate-float32-{tag}", build, NORM)
        for kind, eps in UNUSUAL:
            build = _gated_unusual(kind, eps, 130, before)
            yield Case(name, f"{kind}-eps{eps:g}-{tag}", build, NORM)
    yield Case(name, "5x100-no-gate-no-weight", _bare(), NORM)
    yield Case(name, "5x100-no-gate-groups", _bare(25), NORM)


def cases() -> Iterator[Case]:
    yield from _rms_norms()
    yield from _layer_norms()
    yield from _gated_norms()
