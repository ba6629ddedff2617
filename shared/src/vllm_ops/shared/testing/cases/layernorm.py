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
    weight_dtype: torch.dtype | str | None = SAME,
) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        tensors = [inputs.make(shape, dtype, device, layout)]
        if residual:
            tensors.append(inputs.make(shape, dtype, device, layout, seed=1))
        wanted = dtype if weight_dtype == SAME else weight_dtype
        scale = weight(shape[-1], wanted, device) if isinstance(wanted, torch.dtype) else None
        return (*tensors, scale, EPS, *rest)

    return args


OPTIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("gemma", (None, 1.0, False)),
    ("offset", (None, 1.0, True)),
    ("single-rounding", (None, 0.0, False)),
    ("variance60", (60,)),
)
"""What follows eps: variance_size, weight_offset, round_before_weight."""


def _rms_norms() -> Iterator[Case]:
    for name, residual in (("rms_norm", False), ("fused_add_rms_norm", True)):
        for shape, layout, label in layouts():
            yield Case(name, label, _rms(shape, layout, residual=residual), NORM)
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


def _layer_norm(shape: Shape, layout: str, affine: bool) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        x = inputs.make(shape, dtype, device, layout)
        if not affine:
            return x, None, None, EPS
        size = shape[-1]
        return x, weight(size, dtype, device), weight(size, torch.float32, device, 6), EPS

    return args


def _gated(shape: Shape, layout: str, group_size: int | None, before: bool) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        return (
            inputs.make(shape, dtype, device, layout),
            inputs.make(shape, dtype, device, layout, seed=1),
            weight(shape[-1], dtype, device),
            EPS,
            group_size,
            before,
        )

    return args


def _bare(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
    return inputs.make((5, 100), dtype, device), None, None, EPS


def cases() -> Iterator[Case]:
    yield from _rms_norms()
    for shape, layout, label in layouts():
        yield Case("layer_norm", label, _layer_norm(shape, layout, True), NORM)
    yield Case("layer_norm", "5x100-no-affine", _layer_norm((5, 100), "contiguous", False), NORM)
    for shape, layout, label in layouts():
        group_size = shape[-1] // 2 if shape[-1] % 2 == 0 else None
        for tag, before in (("before", True), ("after", False)):
            build = _gated(shape, layout, group_size, before)
            yield Case("rms_norm_gated", f"{label}-{tag}", build, NORM)
    yield Case("rms_norm_gated", "5x100-no-gate-no-weight", _bare, NORM)
