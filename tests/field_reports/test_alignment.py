# SPDX-License-Identifier: Apache-2.0
"""Theme alignment/odd sizes."""

import pytest
import torch
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import ELEMENTWISE, NORM, assert_within
from vllm_ops.shared.testing.inputs import make

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
GATED = ("silu_and_mul", "mul_and_silu", "gelu_and_mul", "swigluoai_and_mul")


def norm_args(name, size, dtype):
    weight = make((size,), dtype, seed=5) * 0.1 + 1
    return {
        "rms_norm": (weight, 1e-6),
        "layer_norm": (weight, weight - 1, 1e-5),
        "rms_norm_gated": (None, weight, 1e-6),
    }[name]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "rms_norm_gated"])
@pytest.mark.parametrize("size", [3584, 1, 2, 3, 31, 33, 127, 5120 + 16])
def test_hidden_size_of_any_number_of_vectors(run, name, size, dtype):
    x, rest = make((3, size), dtype), norm_args(name, size, dtype)
    assert_within(run(name, x, *rest), OPS[name].native(x, *rest), NORM)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("d", [3420, 1234, 5, 1])
def test_gated_width_that_no_vector_divides(run, name, d, dtype):
    """3420 is a multiple of 4 and not of 8, 1234 of 2 only; only an odd width is refused."""
    x = make((3, 2 * d), dtype)
    assert_within(run(name, x), OPS[name].native(x), ELEMENTWISE)


@pytest.mark.parametrize("name", GATED)
def test_odd_last_dimension_is_refused_in_words(name):
    with pytest.raises(ValueError, match=f"{name}: x must have an even last dimension, got 7"):
        OPS[name].call(make((2, 7), torch.float32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "quick_gelu", "relu2", "layer_norm"])
@pytest.mark.parametrize("columns", [768, 769])
def test_7_rows_of_769(run, name, columns, dtype):
    x = make((7, columns), dtype)
    rest = norm_args(name, columns, dtype) if name == "layer_norm" else ()
    tolerance = NORM if name == "layer_norm" else ELEMENTWISE
    assert_within(run(name, x, *rest), OPS[name].native(x, *rest), tolerance)


@pytest.mark.parametrize("columns", [1, 7, 769, 1025])
def test_in_place_tail_writes_inside_its_bounds(run, columns):
    guarded = torch.full((9, columns + 6), 7.0, dtype=torch.bfloat16)
    x = guarded[1:8, 3 : columns + 3]
    x.copy_(make((7, columns), torch.bfloat16))
    expected = OPS["rms_norm"].native(x.clone(), None, 1e-6)
    run("rms_norm_", x, None, 1e-6)
    assert_within(x, expected, NORM)
    guarded[1:8, 3 : columns + 3] = 7
    assert bool((guarded == 7).all())


def test_flattened_heads_of_a_vision_model(run):
    x = make((2, 25, 257, 48), torch.bfloat16).transpose(1, 2)
    flattened = x.flatten(-2, -1)  # [2, 257, 1200]
    rest = norm_args("layer_norm", 1200, torch.bfloat16)
    expected = OPS["layer_norm"].native(flattened, *rest)
    assert_within(run("layer_norm", flattened, *rest), expected, NORM)
    rest = norm_args("rms_norm", 48, torch.bfloat16)
    assert_within(run("rms_norm", x, *rest), OPS["rms_norm"].native(x, *rest), NORM)


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_head_size_46_from_any_address(run, start):
    """92-byte rows: neither input nor output rows are multiples of 16 bytes."""
    x = make((7 * 46 + 3,), torch.bfloat16)[start : start + 7 * 46].view(7, 46)
    rest = norm_args("rms_norm", 46, torch.bfloat16)
    assert_within(run("rms_norm", x, *rest), OPS["rms_norm"].native(x, *rest), NORM)
    assert_within(run("silu_and_mul", x), OPS["silu_and_mul"].native(x), ELEMENTWISE)


def test_more_rows_than_2_to_23(run):
    """Three columns each: the result doesn't depend on how the rows are split among threads."""
    rows = 2**23 + 3
    few = make((1021, 3), torch.float16)
    x = few.repeat(rows // 1021 + 1, 1)[:rows]
    got = run("rms_norm", x, None, 1e-6)
    part = run("rms_norm", few, None, 1e-6)
    assert torch.equal(got[:1021], part)
    assert torch.equal(got[-(rows % 1021) :], part[: rows % 1021])
    assert torch.equal(got[1021 * 8000 : 1021 * 8001], part)
