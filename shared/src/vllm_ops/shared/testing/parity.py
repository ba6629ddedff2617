# SPDX-License-Identifier: Apache-2.0
"""Run one case through ``torch.ops`` and hold the result against the reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..ops import OPS
from .cases import Case
from .tolerances import assert_within


def flat(outputs: Any) -> list[Tensor]:
    """The tensors among an operator's outputs."""
    if isinstance(outputs, Tensor):
        return [outputs]
    return [value for value in outputs if value is not None]


def check_parity(case: Case, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
    """Raise AssertionError unless operator and reference agree by the contract.

    Also checks what the contract says of every output: contiguous, in the input's dtype, and the
    inputs unchanged.
    """
    op = OPS[case.op]
    args = case.args(dtype, device)
    before = [value.clone() if isinstance(value, Tensor) else value for value in args]
    expected = flat(op.native(*case.args(dtype, device)))
    actual = flat(op.overload(*args))
    if len(actual) != len(expected):
        raise AssertionError(f"{case}: {len(actual)} outputs, expected {len(expected)}")
    for got, want in zip(actual, expected, strict=True):
        if got.dtype != dtype or not got.is_contiguous():
            raise AssertionError(f"{case}: output is {got.dtype} with strides {got.stride()}")
        assert_within(got, want, case.tolerance, f"{case} {dtype}")
    for was, now in zip(before, args, strict=True):
        if isinstance(was, Tensor):
            torch.testing.assert_close(now, was, rtol=0, atol=0, equal_nan=True)
