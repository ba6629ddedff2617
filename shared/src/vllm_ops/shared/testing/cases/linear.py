# SPDX-License-Identifier: Apache-2.0
"""Cases of the linear layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .. import inputs
from ..tolerances import LINEAR
from ._base import Build, Case, Device, Shape, describe

SIZES: tuple[tuple[Shape, int], ...] = (
    ((8,), 5),
    ((1, 1), 1),
    ((1, 64), 33),
    ((2, 46), 7),
    ((3, 769), 40),
    ((4, 1234), 9),
    ((5, 100), 64),
    ((2, 3, 584), 70),
    ((2, 2, 2, 40), 8),
    ((16, 320), 130),
    ((33, 128), 31),
    ((131, 60), 12),
    ((1, 4100), 50),
    ((6, 2100), 34),
    ((0, 64), 8),
    ((3, 0), 6),
    ((3, 0, 8), 6),
    ((2, 3, 0), 5),
)
"""Shapes of ``x`` with the number of outputs: tiles of every height, sizes that nothing divides,
rows longer than a chunk, more rows than a block, nothing at all."""

LAYOUTS: tuple[tuple[Shape, str], ...] = (
    ((6, 200), "sliced"),
    ((2, 7, 3, 48), "transposed"),
    ((4, 72), "expanded"),
    ((3, 65), "unaligned"),
    ((9, 40), "strided_last"),
)

WEIGHTS = ("sliced", "expanded", "unaligned", "strided_last", "transposed")


def _args(
    shape: Shape,
    outputs: int,
    layout: str = "contiguous",
    weights: str = "contiguous",
    bias: str | None = None,
) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        k = shape[-1]
        scale = max(k, 1) ** -0.5
        x = inputs.make(shape, dtype, device, layout)
        if weights == "transposed":
            weight = inputs.make((k, outputs), dtype, device, seed=1, scale=scale).t()
        else:
            weight = inputs.make((outputs, k), dtype, device, weights, seed=1, scale=scale)
        if bias is None:
            return x, weight
        return x, weight, inputs.make((outputs,), dtype, device, bias, seed=2)

    return args


def _int8_args(
    shape: Shape,
    outputs: int,
    layout: str = "contiguous",
    weights: str = "contiguous",
    bias: str | None = None,
) -> Build:
    def args(dtype: torch.dtype, device: Device) -> tuple[Any, ...]:
        k = shape[-1]
        x = inputs.make(shape, dtype, device, layout)
        size = (k, outputs) if weights == "transposed" else (outputs, k)
        made = "contiguous" if weights == "transposed" else weights
        weight = inputs.integers(size, torch.int8, device, made, seed=1)
        if weights == "transposed":
            weight = weight.t()
        # Some 74 is the size of the steps, so the results are about 1.
        scale = inputs.make((outputs,), torch.float32, device, seed=3).abs() + 0.1
        scale *= max(k, 1) ** -0.5 / 74
        if bias is None:
            return x, weight, scale
        return x, weight, scale, inputs.make((outputs,), dtype, device, bias, seed=2)

    return args


def cases() -> Iterator[Case]:
    yield from _linear_cases()
    yield from _int8_cases()


def _linear_cases() -> Iterator[Case]:
    for shape, outputs in SIZES:
        label = f"{describe(shape)}-{outputs}"
        yield Case("linear", label, _args(shape, outputs), LINEAR)
        yield Case("linear", f"{label}-bias", _args(shape, outputs, bias="contiguous"), LINEAR)
    for shape, layout in LAYOUTS:
        build = _args(shape, 24, layout, bias="strided_last")
        yield Case("linear", f"{describe(shape)}-24-{layout}", build, LINEAR)
    for weights in WEIGHTS:
        build = _args((7, 90), 37, weights=weights)
        yield Case("linear", f"7x90-37-weight-{weights}", build, LINEAR)


def _int8_cases() -> Iterator[Case]:
    op = "linear_int8"
    for shape, outputs in SIZES:
        label = f"{describe(shape)}-{outputs}"
        yield Case(op, label, _int8_args(shape, outputs), LINEAR)
        yield Case(op, f"{label}-bias", _int8_args(shape, outputs, bias="contiguous"), LINEAR)
    for shape, layout in LAYOUTS:
        build = _int8_args(shape, 24, layout, bias="strided_last")
        yield Case(op, f"{describe(shape)}-24-{layout}", build, LINEAR)
    for weights in WEIGHTS:
        build = _int8_args((7, 90), 37, weights=weights)
        yield Case(op, f"7x90-37-weight-{weights}", build, LINEAR)
