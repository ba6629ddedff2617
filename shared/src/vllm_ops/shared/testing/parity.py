# SPDX-License-Identifier: Apache-2.0
"""Run one case through ``torch.ops`` and hold the result against the reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops import OPS
from ..ops._gradient import mutated_places
from .cases import Case
from .tolerances import assert_within


def flat(outputs: Any) -> list[Tensor]:
    """The tensors among an operator's outputs."""
    if outputs is None:
        return []
    if isinstance(outputs, Tensor):
        return [outputs]
    return [value for value in outputs if value is not None]


def check_parity(case: Case, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
    """Raise AssertionError unless operator and reference agree by the contract.

    Also checks what the contract says of every output: contiguous, in the input's dtype, and the
    inputs unchanged. An in-place operator is held against the arguments that it writes to, which
    keep their strides.
    """
    op = OPS[case.op]
    args, reference_args = case.args(dtype, device), case.args(dtype, device)
    before = [value.clone() if isinstance(value, Tensor) else value for value in args]
    results = mutated_places(op.overload)
    strides = [args[place].stride() for place in results]
    expected = flat(op.native(*reference_args)) + [reference_args[place] for place in results]
    fresh = flat(op.overload(*args))
    actual = fresh + [args[place] for place in results]
    if len(actual) != len(expected):
        raise AssertionError(f"{case}: {len(actual)} outputs, expected {len(expected)}")
    for got in fresh:
        if not got.is_contiguous():
            raise AssertionError(f"{case}: output has strides {got.stride()}")
    if strides != [args[place].stride() for place in results]:
        raise AssertionError(f"{case}: an argument has other strides than before")
    for got, want in zip(actual, expected, strict=True):
        if got.dtype != dtype:
            raise AssertionError(f"{case}: output is {got.dtype}")
        assert_within(got, want, case.tolerance, f"{case} {dtype}")
    for place, (was, now) in enumerate(zip(before, args, strict=True)):
        if isinstance(was, Tensor) and place not in results:
            torch.testing.assert_close(now, was, rtol=0, atol=0, equal_nan=True)
