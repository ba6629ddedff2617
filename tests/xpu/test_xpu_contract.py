# SPDX-License-Identifier: Apache-2.0
"""What the contract asks beyond the conformance kit."""

import pytest
import torch
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import assert_within, checks, inputs
from vllm_ops.shared.testing.tolerances import NORM


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "rms_norm_gated"])
@pytest.mark.parametrize("cols", [8, 64, 256, 1024, 4096, 8192])
def test_alignment_changes_no_bit(name, cols, kernels):
    """The vector and the scalar path add in the same order, and none of them fuses a product with
    a sum."""
    weight = inputs.make((cols,), torch.float32, seed=2)
    extra = {"rms_norm": (weight, 1e-6), "layer_norm": (weight, weight, 1e-6)}
    for dtype in checks.INVARIANT_DTYPES:
        x = inputs.make((2, cols), dtype)
        moved = torch.empty(x.numel() + 1, dtype=dtype)[1:].view_as(x).copy_(x)
        op, rest = OPS[name].overload, extra.get(name, (x, weight, 1e-6))
        assert torch.equal(op(x, *rest), op(moved, *rest))


@pytest.mark.parametrize("name", ["silu_and_mul", "gelu_and_mul", "swigluoai_and_mul", "xielu"])
def test_alignment_of_elementwise(name, kernels):
    op = OPS[name]
    rest = (torch.tensor([0.7]), torch.tensor([0.9])) if name == "xielu" else ()
    for dtype in checks.INVARIANT_DTYPES:
        x = inputs.make((3, 512), dtype)
        moved = torch.empty(x.numel() + 1, dtype=dtype)[1:].view_as(x).copy_(x)
        assert torch.equal(op.overload(x, *rest), op.overload(moved, *rest))


@pytest.mark.parametrize("cols", [16_384, 65_536])
def test_long_rows(cols, kernels):
    """Rows that no work-group holds in registers, in vectors and without."""
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


def test_offsets_beyond_32_bits(kernels):
    """Rows 2^31 elements apart, on memory that is reserved and hardly touched."""
    far = 2**31 + 64
    storage = torch.empty(far + 64, dtype=torch.bfloat16)
    x = storage.as_strided((2, 64), (far, 1))
    x.copy_(inputs.make((2, 64), torch.bfloat16))
    near = x.contiguous()
    for name, extra in (("rms_norm", (None, 1e-6)), ("silu_and_mul", ()), ("gelu_tanh", ())):
        op = OPS[name]
        assert torch.equal(op.overload(x, *extra), op.overload(near, *extra)), name


@pytest.mark.parametrize("position", [-1, 100, 2**31, -(2**40)])
def test_position_outside_the_table_is_a_row_of_nan(position, kernels):
    table = torch.ones(100, 32)
    positions = torch.tensor([5, position, 99])
    query = inputs.make((3, 2, 46), torch.bfloat16)
    turned, key = OPS["rotary_embedding"].overload(positions, query, None, 46, table)
    assert key is None
    assert turned[1, :, :32].isnan().all()
    assert torch.equal(turned[1, :, 32:], query[1, :, 32:])
    assert not turned[0].isnan().any()
    assert not turned[2].isnan().any()


@pytest.mark.parametrize("dtype", checks.INVARIANT_DTYPES, ids=str)
def test_fused_is_the_unfused_pair(dtype, kernels):
    """The same bits, for heads that one sub-group norms and for those that it does not."""
    table = inputs.make((50, 32), torch.float32)
    positions = torch.arange(4)
    for head_size in (64, 46, 128, 256, 1024, 4096):
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


def test_exp_keeps_its_promise(kernels):
    """silu in fp32 is as close to fp64 as eager torch's, over every size of argument."""
    x = torch.cat([torch.linspace(-110, 100, 40_001), torch.tensor([0.0, -0.0, 1e-30, -1e-30])])
    want = torch.nn.functional.silu(x.double())
    got = OPS["silu_and_mul"].overload(torch.stack([x, torch.ones_like(x)], -1).flatten()[None])
    assert got.shape == (1, len(x))  # halves, not pairs: only the shape is of interest
    both = torch.cat([x, torch.ones_like(x)])[None]
    got = OPS["silu_and_mul"].overload(both)[0]
    ulp = torch.finfo(torch.float32).eps * want.abs().clamp_min(1e-30)
    worst = ((got.double() - want).abs() / ulp).max()
    assert worst < 3, worst


@pytest.mark.parametrize("value", [1.0, 1 + 2**-24, 1 + 3 * 2**-24, 3.5e38, 1e39, 1e-40, 2**-149.5])
def test_float64_parameters(value, kernels):
    """Read in integers, as not every Intel GPU has fp64, and rounded to fp32 to nearest even."""
    for sign in (1.0, -1.0):
        weight = torch.full((8,), sign * value, dtype=torch.float64)
        x = torch.full((1, 8), 1.0)
        got = OPS["rms_norm"].overload(x, weight, 0.0, None, 0.0, True)
        want = weight.float()
        normal = want.abs() >= torch.finfo(torch.float32).tiny
        assert torch.equal(got[0][normal], want[normal])
