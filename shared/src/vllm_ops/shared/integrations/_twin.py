# SPDX-License-Identifier: Apache-2.0
"""Small twins of a model's layers, to find out by calculation what a class computes.

A twin shares every attribute of the layer but has small random weights of its own, on the CPU. So
neither the size, the device nor the values of the real weights matter, and nothing is taken for
granted from a class's name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SIZE = 48
DTYPES = (torch.float32, torch.bfloat16)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Standard normal values that leave the global generator alone."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cpu").to(dtype)


def twin(
    module: nn.Module,
    parameters: dict[str, Tensor | None],
    children: dict[str, nn.Module] | None = None,
) -> nn.Module:
    """A copy of ``module`` with these parameters and children in place of its own."""
    other = copy.copy(module)
    vars(other).update(
        _parameters={
            name: None if value is None else nn.Parameter(value, requires_grad=False)
            for name, value in parameters.items()
        },
        _modules=dict(children or {}),
        training=False,
    )
    return other


def linear(inputs: int, outputs: int, bias: bool, dtype: torch.dtype, seed: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs, bias=bias, device="meta", dtype=dtype)
    weight = random(outputs, inputs, dtype=dtype, seed=seed) / inputs**0.5
    made.weight = nn.Parameter(weight, requires_grad=False)
    if bias:
        made.bias = nn.Parameter(random(outputs, dtype=dtype, seed=seed + 1), requires_grad=False)
    return made


def agree(theirs: Callable[[], Any], ours: Callable[[], Any], dtype: torch.dtype) -> bool:
    """Whether both compute the same tensor, up to the order of sums in fp32.

    In bf16 a rounding flips now and then, but a rounding in another place moves a third of the
    elements. A class that does not take such a call computes something else, whatever it raises.
    """
    with torch.no_grad():
        actual = ours()
        try:
            expected = theirs()
        except Exception:
            return False
    if not isinstance(expected, Tensor) or not isinstance(actual, Tensor):
        return False
    if expected.shape != actual.shape:
        return False
    if expected.dtype != actual.dtype:
        return False
    if dtype == torch.float32:
        return torch.allclose(actual, expected, rtol=1e-5, atol=1e-6)
    return (actual != expected).float().mean().item() < 0.02
