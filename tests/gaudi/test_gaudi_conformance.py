# SPDX-License-Identifier: Apache-2.0
"""The conformance kit over the package's code: the case table, batch invariance, gradients, errors
and opcheck, for every operator that it provides."""

import pytest
import torch
from vllm_ops.gaudi import _HPEX_OPS, _TPC_OPS
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import cases, check_parity, run_conformance


@pytest.mark.parametrize("op", sorted(_HPEX_OPS | _TPC_OPS))
def test_conforms(op, emulator, record_property):
    report = run_conformance("gaudi", ops=[op])
    report.raise_if_failed()
    record_property("conforming", op)


OTHERS = sorted(OPS.keys() - _HPEX_OPS - _TPC_OPS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", OTHERS)
def test_others_run_native(op, dtype, emulator):
    """The operators without a kernel take their cases in this process all the same."""
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"vllm_ops::{op}", "CPU")
    for case in cases(op):
        check_parity(case, dtype)
