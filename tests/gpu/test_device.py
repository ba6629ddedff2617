# SPDX-License-Identifier: Apache-2.0
"""The case table on a real GPU."""

from __future__ import annotations

import importlib
import os

import pytest
import torch
from vllm_ops.shared import gpu_package
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import CASES, DTYPES, check_parity, checks

from .conftest import PACKAGE


@pytest.fixture(scope="module", autouse=True)
def device(package):
    """Goes on with a GPU that the package covers; else skips, or fails where it is required."""
    backend = importlib.import_module(f"vllm_ops.{package}")
    usable, reason = backend.available()
    if not usable:
        if package in os.environ.get("VLLM_OPS_REQUIRE", "").replace(",", " ").split():
            pytest.fail(f"VLLM_OPS_REQUIRE lists {package}, but {reason}")
        pytest.skip(f"no GPU to run on: {reason}")
    backend.load()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parity(case):
    for dtype in DTYPES:
        check_parity(case, dtype, "cuda")


@pytest.mark.parametrize("name", sorted(gpu_package.OPS))
def test_contract(name):
    op = OPS[name]
    checks.check_opcheck(op, "cuda")
    checks.check_errors(op, "cuda")
    for case in checks.sliceable(op):
        if not name.endswith("_"):
            checks.check_batch_invariance(case, torch.bfloat16, "cuda")


@pytest.mark.parametrize("name", [n for n in sorted(gpu_package.OPS) if not n.endswith("_")])
def test_graph_capture(name):
    """A launch synchronises nothing and allocates nothing but the output."""
    args = checks.small_case(OPS[name]).args(torch.bfloat16, "cuda")
    want = checks.flat(OPS[name].overload(*args))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = checks.flat(OPS[name].overload(*args))
    graph.replay()
    torch.cuda.synchronize()
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


@pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason=f"{PACKAGE or 'GPU'}: a second GPU is needed"
)
def test_the_device_of_the_tensor():
    x = torch.randn(4, 64, device="cuda:1")
    with torch.cuda.device(0):
        out = OPS["silu_and_mul"].overload(x)
    assert out.device == x.device
    with torch.cuda.device(1):
        assert torch.equal(out, OPS["silu_and_mul"].overload(x))
