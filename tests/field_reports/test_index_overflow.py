# SPDX-License-Identifier: Apache-2.0
"""Theme index overflow: offsets that a 32-bit integer doesn't hold.

Element offsets beyond 2^31 come from strides, not from data: a few rows, 2^30 elements apart, of an
allocation whose other pages are never touched and so take no memory.
"""

import pytest
import torch
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import ELEMENTWISE, NORM, assert_within, flat
from vllm_ops.shared.testing.inputs import make

APART = 2**30


def far_apart(rows, columns, dtype, apart=APART):
    """``[rows, columns]`` with ``apart`` elements between rows; skips without address space."""
    size = (rows - 1) * apart + columns
    try:
        memory = torch.empty(size, dtype=dtype)
    except RuntimeError as error:
        pytest.skip(f"no {size * dtype.itemsize >> 30} GiB of address space: {error}")
    view = memory.as_strided((rows, columns), (apart, 1))
    view.copy_(make((rows, columns), dtype))
    return view


CALLS = {
    "silu_and_mul": ((), ELEMENTWISE),
    "swigluoai_and_mul": ((), ELEMENTWISE),
    "gelu": ((), ELEMENTWISE),
    "rms_norm": ((None, 1e-6), NORM),
    "layer_norm": ((None, None, 1e-5), NORM),
    "rms_norm_gated": ((None, None, 1e-5), NORM),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("columns", [4096, 2 * 14336 + 2])
def test_row_offset_beyond_32_bits(run, name, columns):
    """fp16 of 1,048,641 x 4096, 149,910 x 14,336 and 524,416 x 4096: rows past element 2^31."""
    rest, tolerance = CALLS[name]
    x = far_apart(4, columns, torch.float16)
    expected = OPS[name].native(x.clone(), *rest)
    assert_within(run(name, x, *rest), expected, tolerance)


def test_row_offset_beyond_32_bits_with_a_residual(run):
    x, residual = (far_apart(4, 4096, torch.float16) for _ in range(2))
    residual.copy_(make((4, 4096), torch.float16, seed=1))
    expected = OPS["fused_add_rms_norm"].native(x.clone(), residual.clone(), None, 1e-6)
    for got, want in zip(
        flat(run("fused_add_rms_norm", x, residual, None, 1e-6)), expected, strict=True
    ):
        assert_within(got, want, NORM)


def test_output_offset_beyond_32_bits(run):
    """The in-place operator writes through the strides of its argument."""
    x = far_apart(4, 4096, torch.float16)
    expected = OPS["rms_norm"].native(x.clone(), None, 1e-6)
    run("rms_norm_", x, None, 1e-6)
    assert_within(x, expected, NORM)


def test_batch_stride_beyond_32_bits(run):
    """The offset is in a dimension that doesn't fold into the rows."""
    x = far_apart(4, 3 * 128, torch.float16).view(4, 3, 128).transpose(0, 1)
    expected = OPS["rms_norm"].native(x.clone(), None, 1e-6)
    assert_within(run("rms_norm", x, None, 1e-6), expected, NORM)


def test_negative_is_not_what_a_stride_of_2_to_31_means(run):
    x = far_apart(2, 520, torch.bfloat16, apart=2**31 + 5)
    expected = OPS["gelu_and_mul"].native(x.clone())
    assert_within(run("gelu_and_mul", x), expected, ELEMENTWISE)


def test_more_heads_than_57344_and_a_small_size(run):
    """Per-head norms of a long prompt: every row gets its own, and the sum is not the norm."""
    few = make((509, 16), torch.bfloat16)
    heads = few.repeat(60_000 // 509 + 1, 1)[:60_000]
    residual = heads.flip(-1)
    normed, total = run("fused_add_rms_norm", heads, residual, None, 1e-6)
    part, part_total = run("fused_add_rms_norm", few, few.flip(-1), None, 1e-6)
    assert normed.data_ptr() != total.data_ptr()
    for start in (0, 509 * 113, 509 * 117 - 10):
        rows = torch.arange(start, min(start + 509, 60_000))
        assert torch.equal(normed[rows], part[rows % 509])
        assert torch.equal(total[rows], part_total[rows % 509])
