# SPDX-License-Identifier: Apache-2.0
"""In-place operators beside autograd: what a call counts, and what one that fails leaves alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from vllm_ops.shared import functional
from vllm_ops.shared.ops import OPS

CALLS = {"functional": lambda op: getattr(functional, op), "torch.ops": lambda op: OPS[op].overload}
WAYS = pytest.mark.parametrize("way", CALLS)
TABLE = torch.randn(16, 8)


def arguments(op: str) -> tuple[Any, ...]:
    x = torch.randn(4, 8)
    if op == "rotary_embedding_":
        return torch.arange(4), x, torch.randn(4, 16), 8, TABLE
    rest = (torch.ones(8), 1e-6)
    return (x, torch.randn(4, 8), *rest) if op.startswith("fused") else (x, *rest)


IN_PLACE = [name for name, op in OPS.items() if op.in_place]


def tensors(values: tuple[Any, ...]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


@WAYS
@pytest.mark.parametrize("op", IN_PLACE)
def test_writes_are_counted(op: str, way: str) -> None:
    """The reference's own writes are as well, so once or more."""
    args = arguments(op)
    before = [value._version if isinstance(value, torch.Tensor) else 0 for value in args]
    CALLS[way](op)(*args)
    schema = OPS[op].overload._schema.arguments
    for value, count, argument in zip(args, before, schema, strict=False):
        if isinstance(value, torch.Tensor):
            assert (value._version > count) == (argument.alias_info is not None), argument.name


def wrong(op: str) -> tuple[Any, ...]:
    if op == "rotary_embedding_":
        positions, *rest = arguments(op)
        return positions + 13, *rest
    *args, _ = arguments(op)
    return *args, -1.0


@WAYS
@pytest.mark.parametrize("op", IN_PLACE)
def test_a_call_that_fails_counts_and_writes_nothing(op: str, way: str) -> None:
    args = wrong(op)
    before = [(value._version, value.clone()) for value in tensors(args)]
    with pytest.raises((ValueError, RuntimeError), match=op):
        CALLS[way](op)(*args)
    for value, (count, kept) in zip(tensors(args), before, strict=True):
        assert value._version == count
        assert torch.equal(value, kept)


@WAYS
@pytest.mark.parametrize("op", IN_PLACE)
@pytest.mark.parametrize(
    "mode", [contextlib.nullcontext, torch.no_grad, torch.inference_mode], ids=lambda m: m.__name__
)
def test_a_view_whose_sign_is_a_bit(op: str, way: str, mode: Callable[[], Any]) -> None:
    with mode():
        args = [
            torch.view_as_complex(torch.stack((value, value), -1)).conj().imag
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value is not TABLE
            else value
            for value in arguments(op)
        ]
        assert any(value.is_neg() for value in tensors(tuple(args)))
        plain = [v.resolve_neg() if isinstance(v, torch.Tensor) else v for v in args]
        want = getattr(functional, op.removesuffix("_"))(*plain)
        CALLS[way](op)(*args)
        want = (want,) if isinstance(want, torch.Tensor) else want
        places = [
            i
            for i, argument in enumerate(OPS[op].overload._schema.arguments)
            if argument.alias_info is not None
        ]
        for place, value in zip(places, want, strict=True):
            assert torch.equal(args[place], value)
