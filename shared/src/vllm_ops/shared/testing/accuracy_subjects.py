# SPDX-License-Identifier: Apache-2.0
"""What the accuracy checks run: operators with their arguments, and regimes of inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..reference.layernorm import rms_norm
from . import inputs
from .cases.activation import GATED, POINTWISE
from .cases.layernorm import unusual
from .cases.rotary import ROWS as TABLE_ROWS
from .cases.rotary import table

ROWS, COLUMNS = 64, 1024
CHAIN_ROWS = 32
CHAIN_LENGTH = 72
"""Layers of a deep model."""

EPS = 1e-6

REGIMES = ("normal", "large", "tiny", "outliers", "squares_overflow", "shifted")
"""
normal            standard normal
large             of magnitude 1e4
tiny              of magnitude 1e-4
outliers          standard normal, one value in two hundred 300 times that
squares_overflow  magnitudes from 300 to 60,000, whose squares overflow fp16
shifted           standard normal plus 30, from which a mean is hard to tell apart
"""


def values(regime: str, shape: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
    """Inputs of one regime, the same on every device.

    Raises:
        ValueError: no such regime.
    """
    if regime not in REGIMES:
        raise ValueError(f"regime must be one of {', '.join(REGIMES)}, got {regime!r}")
    if regime == "normal":
        return inputs.make(shape, dtype, device)
    if regime in ("large", "tiny", "outliers"):
        return unusual(regime, shape, dtype, device)
    wide = inputs.make(shape, torch.float64, "cpu")
    if regime == "shifted":
        wide = wide + 30
    else:
        generator = torch.Generator().manual_seed(9)
        size = torch.rand(shape, generator=generator, dtype=torch.float64)
        wide = wide.sign() * 300 * 200**size
    return wide.to(dtype).to(device)


Build = Callable[[Tensor], tuple[Any, ...]]


@dataclass(frozen=True)
class Subject:
    """One operator with one choice of arguments.

    Attributes:
        op: its name.
        tag: what the arguments are.
        build: the arguments for an ``x [..., COLUMNS]`` of ordinary width.
        gated: whether the operator halves the last dimension.
        floor: share of the root mean square of the result below which errors count as at it, for
        operators whose terms cancel.
        rows: of the input.
    """

    op: str
    tag: str
    build: Build = field(repr=False)
    gated: bool = False
    floor: float = 0.0
    rows: int = ROWS

    def __str__(self) -> str:
        return f"{self.op}-{self.tag}" if self.tag else self.op

    def args(self, regime: str, dtype: torch.dtype, device: Any = "cpu") -> tuple[Any, ...]:
        columns = COLUMNS * (2 if self.gated else 1)
        return self.build(values(regime, (self.rows, columns), dtype, device))

    def chain(
        self,
        run: Callable[..., Any],
        dtype: torch.dtype,
        device: Any = "cpu",
        seed: int = 3,
    ) -> Tensor:
        """``h + op(norm(h))``, 72 times, in fp64 but for the operator; the other half of a gated
        input stays the same.

        The norm keeps h from running away. Moving the columns along keeps an element from meeting
        the same increment, and so the same rounding, every time. With the sum in fp64 what is left
        is the operator's own error.
        """
        rows = min(CHAIN_ROWS, self.rows)
        h = inputs.make((rows, COLUMNS), torch.bfloat16, device, seed=seed).double()
        for _ in range(CHAIN_LENGTH):
            x = rms_norm(h, None, EPS).to(dtype)
            if self.gated:
                x = torch.cat((x, _other(x)), dim=-1)
            output = run(*self.build(x))
            output = output if isinstance(output, Tensor) else output[0]
            h = h + output.double().reshape(h.shape).roll(101, -1)
        return h


def _weight(x: Tensor, seed: int, around: float = 1.0) -> Tensor:
    """Not exactly representable in half precision before it is rounded to it."""
    drawn = inputs.make((x.shape[-1],), torch.float64, "cpu", seed=seed) * 0.1 + around
    half = drawn.to(torch.bfloat16)  # the same numbers for the fp64 run
    return half.to(x.dtype).to(x.device)


def _other(x: Tensor, seed: int = 11) -> Tensor:
    """A residual or a gate: the same numbers for every dtype."""
    drawn = inputs.make(x.shape, torch.float64, "cpu", seed=seed).to(torch.bfloat16)
    return drawn.to(x.dtype).to(x.device)


def _alphas(x: Tensor) -> tuple[Tensor, Tensor]:
    alphas = torch.tensor([[0.5625], [0.3125]], dtype=x.dtype, device=x.device)
    return alphas[0], alphas[1]


def _plain(*extra: Any) -> Build:
    return lambda x: (x, *extra)


def _activations() -> list[Subject]:
    found = [
        Subject(op, "-".join(map(str, extra)), _plain(*extra), gated=True) for op, extra in GATED
    ]
    found += [Subject(op, "", _plain()) for op in POINTWISE]
    found.append(Subject("xielu", "", lambda x: (x, *_alphas(x)), floor=0.1))
    return found


def _norms() -> list[Subject]:
    return [
        Subject("rms_norm", "llama", lambda x: (x, _weight(x, 5), EPS)),
        Subject("rms_norm", "no-weight", lambda x: (x, None, EPS)),
        Subject("rms_norm", "gemma", lambda x: (x, _weight(x, 5, 0.0), EPS, None, 1.0, False)),
        Subject("rms_norm", "variance-size", lambda x: (x, _weight(x, 5), EPS, COLUMNS // 4)),
        Subject("fused_add_rms_norm", "llama", lambda x: (x, _other(x), _weight(x, 5), EPS)),
        Subject(
            "fused_add_rms_norm",
            "gemma",
            lambda x: (x, _other(x), _weight(x, 5, 0.0), EPS, None, 1.0, False),
        ),
        # Differences of nearby numbers: a result near zero has the absolute error of the others.
        Subject(
            "layer_norm",
            "affine",
            lambda x: (x, _weight(x, 5), _weight(x, 6, 0.0), EPS),
            floor=1.0,
        ),
        Subject("layer_norm", "no-affine", lambda x: (x, None, None, EPS), floor=1.0),
        Subject("rms_norm_gated", "before", lambda x: (x, _other(x), _weight(x, 5), EPS, 256)),
        Subject(
            "rms_norm_gated", "after", lambda x: (x, _other(x), _weight(x, 5), EPS, None, False)
        ),
        Subject("rms_norm_gated", "no-gate", lambda x: (x, None, _weight(x, 5), EPS)),
    ]


HEAD_SIZE = 128
POSITION_STEP = 37
"""From one row to the next, so that every angle is met."""


def _rotary(is_neox_style: bool) -> Build:
    def args(x: Tensor) -> tuple[Any, ...]:
        positions = torch.arange(x.shape[0], device=x.device) * POSITION_STEP
        return positions, x, _other(x), HEAD_SIZE, table(HEAD_SIZE, TABLE_ROWS, x.device)

    return lambda x: (*args(x), is_neox_style)


def _multimodal(x: Tensor) -> tuple[Any, ...]:
    positions, *rest = _rotary(True)(x)
    axes = torch.stack((positions, positions.flip(0), positions // 2))
    return (axes, *rest[:-1], [16, 24, 24])


def _given_angles(x: Tensor) -> tuple[Any, ...]:
    positions = torch.arange(x.shape[0], device=x.device) * POSITION_STEP
    cos, sin = table(HEAD_SIZE, TABLE_ROWS, x.device)[positions].chunk(2, -1)
    return x.unflatten(-1, (-1, HEAD_SIZE)), cos, sin


def _norm_and_rotary(x: Tensor) -> tuple[Any, ...]:
    positions, query, key, head_size, cache, _ = _rotary(True)(x)
    weights = _weight(x[:, :HEAD_SIZE], 5), _weight(x[:, :HEAD_SIZE], 6)
    return positions, query, key, head_size, *weights, EPS, cache


def _rotaries() -> list[Subject]:
    return [
        Subject("rotary_embedding", "neox", _rotary(True), floor=1.0),
        Subject("rotary_embedding", "gptj", _rotary(False), floor=1.0),
        Subject("multimodal_rotary_embedding", "", _multimodal, floor=1.0),
        Subject("apply_rotary_emb", "", _given_angles, floor=1.0),
        Subject("qk_norm_rope", "", _norm_and_rotary, floor=1.0),
    ]


FEW_ROWS = 8
"""A backend may leave more of them to torch, see docs/linear.md."""


@functools.lru_cache(maxsize=1)
def _matrix() -> Tensor:
    drawn = inputs.make((COLUMNS, COLUMNS), torch.float64, seed=12, scale=COLUMNS**-0.5)
    return drawn.to(torch.bfloat16)  # the same numbers for every dtype


def _linear(x: Tensor) -> tuple[Any, ...]:
    return x, _matrix().to(x.dtype).to(x.device), _weight(x, 6, 0.0)


LINEAR = Subject("linear", "few-rows", _linear, floor=1.0, rows=FEW_ROWS)

SUBJECTS: tuple[Subject, ...] = (*_activations(), *_norms(), *_rotaries(), LINEAR)
"""Every operator that is not in-place; an in-place one is the same kernel."""
