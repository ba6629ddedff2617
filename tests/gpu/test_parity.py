# SPDX-License-Identifier: Apache-2.0
"""The whole case table, emulated, at two warp sizes and three orders of threads and blocks."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
import torch
from torch import Tensor
from vllm_ops.shared import gpu_package
from vllm_ops.shared.testing import CASES, DTYPES, check_parity

from .conftest import BACKWARD, FORWARD, RANDOM

CONFIGURATIONS = tuple(itertools.product((32, 64), (FORWARD, BACKWARD, RANDOM)))
LARGE = 10_000
"""Elements from which a case runs in one configuration a dtype, in turn, to save time: the large
ones are 5x3420 and 2x3x3584, whose paths the small ones take as well."""

_passed: dict[str, int] = defaultdict(int)


def _configurations(place: int, size: int, dtype: torch.dtype) -> tuple[tuple[int, int], ...]:
    if dtype == torch.float64:
        return CONFIGURATIONS[:1]  # the reference runs, no kernel
    if size >= LARGE:
        turn = (place + DTYPES.index(dtype)) % len(CONFIGURATIONS)
        return CONFIGURATIONS[turn : turn + 1]
    return CONFIGURATIONS


@pytest.mark.parametrize("place", range(len(CASES)), ids=lambda place: str(CASES[place]))
def test_parity(place, configure, request):
    case = CASES[place]
    size = max(
        value.numel() for value in case.args(torch.float32, "cpu")[:3] if isinstance(value, Tensor)
    )
    for dtype in DTYPES:
        for warp, order in _configurations(place, size, dtype):
            configure(warp, order)
            check_parity(case, dtype)
    _passed[case.op] += 1
    if _passed[case.op] == sum(other.op == case.op for other in CASES):
        request.config.emulated_ops = {*getattr(request.config, "emulated_ops", ()), case.op}


def test_the_table_covers_every_kernel():
    """rotary_embedding_ has no cases of its own: test_contract.py takes those of its twin."""
    assert {case.op for case in CASES} | {"rotary_embedding_"} >= gpu_package.OPS
