# SPDX-License-Identifier: Apache-2.0
"""The conformance kit on the SYCL CPU device: the case table, batch invariance, determinism,
gradients, errors and opcheck for every operator, and one node in a compiled graph."""

import pytest
import torch
import vllm_ops.xpu
from vllm_ops.shared import gpu_package
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import CASES, checks, run_conformance

NAMES = sorted(vllm_ops.xpu.ops_provided())


@pytest.mark.parametrize("op", NAMES)
def test_conforms(op, kernels, record_property):
    report = run_conformance("xpu", ops=[op])
    report.raise_if_failed()
    record_property("conforming", op)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_")])
@pytest.mark.parametrize("dtype", checks.INVARIANT_DTYPES, ids=str)
def test_compile(name, dtype, kernels):
    """One graph without a break, with the kernel behind it."""
    op = OPS[name]
    args = checks.small_case(op).args(dtype, "cpu")
    torch._dynamo.reset()  # the other operators count as recompilations
    compiled = torch.compile(op.overload, backend="aot_eager", fullgraph=True)
    for got, want in zip(
        checks.flat(compiled(*args)), checks.flat(op.overload(*args)), strict=True
    ):
        assert torch.equal(got, want)


def test_the_table_covers_every_kernel():
    """rotary_embedding_ has no cases of its own: the kit takes those of its twin."""
    assert {case.op for case in CASES} | {"rotary_embedding_"} >= gpu_package.OPS
    assert OPS.keys() - {"linear", "linear_int8"} == gpu_package.OPS
