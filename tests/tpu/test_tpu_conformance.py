# SPDX-License-Identifier: Apache-2.0
"""What the contract asks of a kernel besides parity: rows, writes in place, gradients, errors."""

import pytest
import torch
import vllm_ops.tpu
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import checks

PROVIDED = [name for name in OPS if name in vllm_ops.tpu.ops_provided()]
FUNCTIONAL = [name for name in PROVIDED if not OPS[name].in_place]


@pytest.mark.parametrize("name", [n for n in FUNCTIONAL if n != "multimodal_rotary_embedding"])
def test_rows_do_not_depend_on_each_other(name, device):
    """The same bits alone, among others, and at another offset: one case with several rows."""
    case = checks.small_case(OPS[name])
    checks.check_batch_invariance(case, torch.bfloat16, device)
    checks.check_batch_invariance(case, torch.float32, device)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_gradient(name, device):
    checks.check_gradient(OPS[name], device)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_errors(name, device):
    checks.check_errors(OPS[name], device)


def test_errors_in_place(device):
    """An expanded argument is not refused here: torch-xla's tensors hide their strides."""
    x = torch.ones(2, 8, device=device)
    with pytest.raises(RuntimeError, match="rms_norm_: x must be floating point"):
        torch.ops.vllm_ops.rms_norm_(x.to(torch.int8), None, 1e-6)
    with pytest.raises(RuntimeError, match="fused_add_rms_norm_: residual must have shape"):
        torch.ops.vllm_ops.fused_add_rms_norm_(x, x[:1], None, 1e-6)
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="rms_norm_: x must not require a gradient"):
        torch.ops.vllm_ops.rms_norm_(x, None, 1e-6)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_opcheck(name, device):
    """Schema, fake kernel, autograd registration and AOT dispatch."""
    checks.check_opcheck(OPS[name], device)


@pytest.mark.parametrize("name", [name for name in PROVIDED if OPS[name].in_place])
def test_in_place(name, device):
    """Functional operator and copies write what the twin returns, into strided arguments."""
    op = OPS[name]
    checks.check_in_place(op, checks.small_case(op), torch.bfloat16, device)
    if name == "fused_add_rms_norm_":
        checks.check_shared_memory(op, device)


def test_in_place_into_a_view(device):
    """A write through a view reaches the tensor under it."""
    whole = torch.randn(4, 48, device=device)
    expected = OPS["rms_norm"].native(whole.cpu()[:, 8:40], None, 1e-6)
    torch.ops.vllm_ops.rms_norm_(whole[:, 8:40], None, 1e-6)
    torch.testing.assert_close(whole.cpu()[:, 8:40], expected, rtol=4e-6, atol=1e-6)
