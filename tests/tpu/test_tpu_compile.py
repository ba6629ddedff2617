# SPDX-License-Identifier: Apache-2.0
"""``torch.compile(backend="openxla")``: every operator, in one graph without a break."""

import pytest
import torch
import torch_xla
from torch import Tensor, nn
from vllm_ops.shared import RMSNorm, SiluAndMul
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import checks
from vllm_ops.shared.testing.cases.rotary import table
from xla_parity import assert_parity


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch.no_grad():
        yield


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if not op.in_place])
def test_operator(name):
    op = OPS[name]
    case = checks.small_case(op)

    def function(*args):
        tensors = [value for value in args if isinstance(value, Tensor)]
        places = [place for place, value in enumerate(args) if isinstance(value, Tensor)]

        @torch.compile(backend="openxla", fullgraph=True)
        def compiled(*given):
            full = list(args)
            for place, value in zip(places, given, strict=True):
                full[place] = value
            return op.overload(*full)

        return compiled(*tensors)

    assert_parity([case], torch.float32, function)


class Block(nn.Module):
    """A norm with a residual, a gated activation, and a rotation."""

    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(64, dtype=torch.bfloat16)
        self.act = SiluAndMul()
        self.register_buffer("cache", table(32, 16, "cpu"))

    def forward(self, x, residual, positions):
        normed, total = self.norm(x, residual)
        gated = self.act(torch.cat((normed, total), -1))
        turned, _ = torch.ops.vllm_ops.rotary_embedding(positions, gated, None, 32, self.cache)
        return turned, total


def test_block_of_layers():
    block = Block()
    assert block.norm.decision.device == "tpu"
    assert not block.norm.decision.native
    x, residual = torch.randn(2, 7, 64).bfloat16()
    positions = torch.arange(7)
    expected = OPS["rms_norm"].native(x + residual, block.norm.weight, block.norm.eps)
    gated = OPS["silu_and_mul"].native(torch.cat((expected, x + residual), -1))
    turned, _ = OPS["rotary_embedding"].native(positions, gated, None, 32, block.cache)
    device = torch_xla.device()
    compiled = torch.compile(block.to(device), backend="openxla", fullgraph=True)
    got, total = compiled(x.to(device), residual.to(device), positions.to(device))
    assert torch.equal(total.cpu(), x + residual)
    torch.testing.assert_close(got.cpu(), turned, rtol=2**-7, atol=2**-7)
