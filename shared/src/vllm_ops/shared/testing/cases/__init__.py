# SPDX-License-Identifier: Apache-2.0
"""The case table: one list drives parity tests, opcheck, conformance kit and support matrix."""

from __future__ import annotations

from . import activation, layernorm, linear, rotary
from ._base import DTYPES, Build, Case, Device, Shape

CASES: tuple[Case, ...] = (
    *activation.cases(),
    *layernorm.cases(),
    *linear.cases(),
    *rotary.cases(),
)


def cases(op: str | None = None) -> tuple[Case, ...]:
    """Every case, or those of one operator."""
    return tuple(case for case in CASES if op in (None, case.op))


__all__ = ["CASES", "DTYPES", "Build", "Case", "Device", "Shape", "cases"]
