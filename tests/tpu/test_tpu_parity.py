# SPDX-License-Identifier: Apache-2.0
"""The case table on the ``xla`` device, eager: every operator in every dtype, whether it has a
kernel or not."""

import pytest
import torch
import vllm_ops.tpu
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import cases
from vllm_ops.shared.testing.cases import DTYPES
from xla_parity import assert_parity


def table(name):
    """The cases of an operator; an in-place one has those of its functional twin."""
    return cases(name) or cases(name.removesuffix("_"))


# torch-xla adds the bias of a matrix product in half precision; matrix products have no kernel.
TABLE = [
    pytest.param(name, dtype, id=f"{name}-{dtype}")
    for name in OPS
    for dtype in DTYPES
    if not name.startswith("linear") or dtype.itemsize > 2
]


@pytest.mark.parametrize(("name", "dtype"), TABLE)
def test_case_table(name, dtype, record_property):
    assert_parity(table(name), dtype)
    if name in vllm_ops.tpu.ops_provided() and dtype == torch.bfloat16:
        record_property("conforming", name)
