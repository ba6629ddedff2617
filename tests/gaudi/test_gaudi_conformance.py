# SPDX-License-Identifier: Apache-2.0
"""The conformance kit over the package's code: the case table, batch invariance, gradients, errors
and opcheck, for every operator that it provides."""

import pytest
from vllm_ops.gaudi import _HPEX_OPS, _TPC_OPS
from vllm_ops.shared.testing import run_conformance


@pytest.mark.parametrize("op", sorted(_HPEX_OPS | _TPC_OPS))
def test_conforms(op, emulator, record_property):
    report = run_conformance("gaudi", ops=[op])
    report.raise_if_failed()
    record_property("conforming", op)
