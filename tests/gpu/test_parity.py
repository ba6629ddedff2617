# SPDX-License-Identifier: Apache-2.0
"""The whole case table, emulated, at two warp sizes and three orders of threads and blocks."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
import torch
from vllm_ops.shared import gpu_package
from vllm_ops.shared.testing import CASES, DTYPES, check_parity

from .conftest import BACKWARD, FORWARD, RANDOM

CONFIGURATIONS = tuple(itertools.product((32, 64), (FORWARD, BACKWARD, RANDOM)))

_passed: dict[str, int] = defaultdict(int)


def _configurations(dtype: torch.dtype) -> tuple[tuple[int, int], ...]:
    # In fp64 the reference runs, and no kernel.
    return CONFIGURATIONS[:1] if dtype == torch.float64 else CONFIGURATIONS


@pytest.mark.parametrize("place", range(len(CASES)), ids=lambda place: str(CASES[place]))
def test_parity(place, configure, request):
    case = CASES[place]
    for dtype in DTYPES:
        for warp, order in _configurations(dtype):
            configure(warp, order)
            check_parity(case, dtype)
    _passed[case.op] += 1
    if _passed[case.op] == sum(other.op == case.op for other in CASES):
        request.config.emulated_ops = {*getattr(request.config, "emulated_ops", ()), case.op}


def test_the_table_covers_every_kernel():
    """rotary_embedding_ has no cases of its own: test_contract.py takes those of its twin."""
    assert {case.op for case in CASES} | {"rotary_embedding_"} >= gpu_package.OPS
