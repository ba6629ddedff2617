# SPDX-License-Identifier: Apache-2.0
"""Every case of the table, through ``torch.ops``, against the reference."""

import pytest
import torch
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import CASES, DTYPES, check_parity


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_parity(case, dtype):
    check_parity(case, dtype)


# opcheck compares eager and traced outputs as if NaN differed from NaN; parity covers those cases.
FINITE = [case for case in CASES if not case.id.startswith("specials")]


@pytest.mark.parametrize("case", FINITE, ids=str)
def test_opcheck(case):
    torch.library.opcheck(OPS[case.op].overload, case.args(torch.float32, "cpu"))
