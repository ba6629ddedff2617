# SPDX-License-Identifier: Apache-2.0
"""What the contract asks besides parity, on the emulated kernels."""

from __future__ import annotations

import pytest
import torch
from vllm_ops.shared import gpu_package
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import assert_within, cases, checks, inputs
from vllm_ops.shared.testing.tolerances import NORM

from .conftest import BACKWARD, FORWARD, RANDOM

NAMES = sorted(gpu_package.OPS)
HALF = (torch.float16, torch.bfloat16)
SMALL = 6_000


def _small(case) -> bool:
    tensors = [v for v in case.args(torch.float32, "cpu")[:3] if isinstance(v, torch.Tensor)]
    return max(value.numel() for value in tensors) <= SMALL


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name, configure):
    checks.check_opcheck(OPS[name], "cpu")


@pytest.mark.parametrize("name", NAMES)
def test_errors(name, configure):
    checks.check_errors(OPS[name], "cpu")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_")])
def test_gradient(name, configure):
    checks.check_gradient(OPS[name], "cpu")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_")])
def test_compile(name, configure):
    """One node in a graph without a break, with the kernel behind it."""
    op = OPS[name]
    args = checks.small_case(op).args(torch.float32, "cpu")
    torch._dynamo.reset()  # the other operators count as recompilations
    compiled = torch.compile(op.overload, backend="aot_eager", fullgraph=True)
    for got, want in zip(
        checks.flat(compiled(*args)), checks.flat(op.overload(*args)), strict=True
    ):
        assert torch.equal(got, want)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_")])
@pytest.mark.parametrize("dtype", checks.INVARIANT_DTYPES, ids=str)
def test_in_place(name, dtype, configure, request):
    op = OPS[name]
    twin = name.removesuffix("_")
    for order in (FORWARD, BACKWARD, RANDOM):
        configure(64, order)
        for case in filter(_small, cases(twin)):
            if case.id.endswith("expanded") or "specials" in case.id:
                continue
            checks.check_in_place(op, case, dtype, "cpu")
    if not cases(name):  # has no cases of its own: those of its twin are its table
        request.config.emulated_ops = {*getattr(request.config, "emulated_ops", ()), name}


@pytest.mark.parametrize("name", NAMES)
def test_batch_invariance(name, configure):
    configure(32, RANDOM)
    for case in filter(_small, checks.sliceable(OPS[name])):
        if name.endswith("_"):
            continue
        checks.check_batch_invariance(case, torch.bfloat16, "cpu")


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "rms_norm_gated"])
@pytest.mark.parametrize("cols", [64, 256, 1024, 4096, 8192])
def test_alignment_changes_no_bit(name, cols, configure):
    """The vector and the scalar path add in the same order."""
    extra = (None, 1e-6) if name == "rms_norm" else (None, None, 1e-6)
    for dtype in (torch.float32, torch.bfloat16):
        x = inputs.make((2, cols), dtype)
        moved = torch.empty(x.numel() + 1, dtype=dtype)[1:].view_as(x).copy_(x)
        assert torch.equal(OPS[name].overload(x, *extra), OPS[name].overload(moved, *extra))


@pytest.mark.parametrize("cols", [16_384, 65_536])
def test_long_rows(cols, configure):
    """Rows that no block holds in registers, in vectors and without."""
    for dtype, shift in ((torch.bfloat16, 0), (torch.float32, 1)):
        x = inputs.make((cols + shift,), dtype)[shift:].view(1, cols)
        residual = inputs.make((1, cols), dtype, seed=1)
        weight = inputs.make((cols,), torch.float32, seed=2)
        got = OPS["fused_add_rms_norm"].overload(x, residual, weight, 1e-6)
        want = OPS["fused_add_rms_norm"].native(x, residual, weight, 1e-6)
        for one, other in zip(got, want, strict=True):
            assert_within(one, other, NORM)
        got = OPS["layer_norm"].overload(x, weight, None, 1e-6)
        assert_within(got, OPS["layer_norm"].native(x, weight, None, 1e-6), NORM)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_")])
def test_more_work_than_blocks(name, configure):
    """Two blocks do what a grid as large as the work does: no block leaves its rows undone."""
    op = OPS[name]
    case = checks.small_case(op)
    configure()
    want = checks.flat(op.overload(*case.args(torch.bfloat16, "cpu")))
    configure(max_blocks=2)
    for got, other in zip(
        checks.flat(op.overload(*case.args(torch.bfloat16, "cpu"))), want, strict=True
    ):
        assert torch.equal(got.nan_to_num(7.0), other.nan_to_num(7.0))


def test_offsets_beyond_32_bits(configure):
    """Rows 2^31 elements apart, on memory that is reserved and hardly touched."""
    far = 2**31 + 64
    storage = torch.empty(far + 64, dtype=torch.bfloat16)
    x = storage.as_strided((2, 64), (far, 1))
    x.copy_(inputs.make((2, 64), torch.bfloat16))
    near = x.contiguous()
    for name, extra in (("rms_norm", (None, 1e-6)), ("silu_and_mul", ()), ("gelu_tanh", ())):
        op = OPS[name]
        assert torch.equal(op.overload(x, *extra), op.overload(near, *extra)), name


def test_more_dimensions_than_the_kernels_walk(configure):
    x = inputs.make((2, 3, 2, 3, 2, 16), torch.float32).permute(4, 1, 2, 3, 0, 5)
    assert torch.equal(
        OPS["rms_norm"].overload(x, None, 1e-6),
        OPS["rms_norm"].overload(x.contiguous(), None, 1e-6),
    )


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("position", [-1, 100, 2**31, -(2**40)])
@pytest.mark.parametrize("head_size", [64, 46])
def test_position_outside_the_table_is_a_row_of_nan(position, dtype, head_size, configure):
    """And never a read outside of it, which the emulator would report."""
    table = torch.ones(100, 32)
    positions = torch.tensor([5, position, 99])
    query = inputs.make((3, 2, head_size), dtype)
    turned, key = OPS["rotary_embedding"].overload(positions, query, None, head_size, table)
    assert key is None
    assert turned[1, :, :32].isnan().all()
    assert torch.equal(turned[1, :, 32:], query[1, :, 32:])
    assert not turned[0].isnan().any()
    assert not turned[2].isnan().any()


@pytest.mark.parametrize("dtype", checks.INVARIANT_DTYPES, ids=str)
def test_fused_is_the_unfused_pair(dtype, configure):
    """The same bits, for heads that one warp norms and for those that it does not."""
    table = inputs.make((50, 32), torch.float32)
    positions = torch.arange(4)
    for head_size in (64, 46, 128, 1024, 4096):
        query = inputs.make((4, 3, head_size), dtype)
        key = inputs.make((4, 2, head_size), dtype, seed=1)
        weight = inputs.make((head_size,), torch.float32, seed=2)
        norm = OPS["rms_norm"].overload
        for style in (True, False):
            want = OPS["rotary_embedding"].overload(
                positions, norm(query, weight, 1e-6), norm(key, None, 1e-6), head_size, table, style
            )
            got = OPS["qk_norm_rope"].overload(
                positions, query, key, head_size, weight, None, 1e-6, table, style
            )
            assert all(map(torch.equal, got, want)), (head_size, style)
