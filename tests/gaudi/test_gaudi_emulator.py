# SPDX-License-Identifier: Apache-2.0
"""The TPC-C sources under the emulator: splits of the index space, tails, reads beyond the end,
accuracy, and nodes that the glue must refuse.

The emulator also checks, in every run of every test, that no part of the index space touches
anything outside of the access pattern that the glue stated for it.
"""

import pytest
import torch
from vllm_ops.shared.testing import cases, check_parity
from vllm_ops.shared.testing.accuracy import check_accuracy
from vllm_ops.shared.testing.accuracy_subjects import REGIMES, SUBJECTS

DTYPES = {torch.bfloat16: "bf16", torch.float32: "f32"}
NORM = (1e-6, 1.0, True)

# Around one load of 128, and of 64, elements.
SIZES = (1, 2, 63, 64, 65, 127, 128, 129, 255, 257, 1000)


def kernel(name, dtype):
    return getattr(torch.ops.vllm_ops_gaudi, f"{name}_{DTYPES[dtype]}")


def calls(dtype, size, rows=5):
    """Every kernel with arguments of this size."""

    def make(*shape):
        return torch.randn(shape).to(dtype)

    yield "silu_and_mul", (make(rows, 2 * size),)
    yield "gelu_and_mul", (make(rows, 2 * size), False)
    yield "gelu_and_mul", (make(rows, 2 * size), True)
    yield "fused_add_rms_norm", (make(rows, size), make(rows, size), make(size), *NORM)
    heads = make(rows, 3, size), make(rows, 2, size)
    yield "qk_norm", (*heads, make(size), make(size), *NORM)


def flat(outputs):
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_splits_give_the_same_bits(emulator, dtype, size):
    """Whatever part of the index space a core gets, and whichever elements share a lane."""
    for name, args in calls(dtype, size):
        run = kernel(name, dtype)
        with emulator.configured(parts=1):
            whole = flat(run(*args))
        for parts in (2, 3, 64):
            with emulator.configured(parts=parts):
                for got, want in zip(flat(run(*args)), whole, strict=True):
                    assert torch.equal(got, want), (name, parts)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lane_order_is_not_assumed(emulator, dtype):
    """The bf16 conversions may interleave; elementwise results must not change, and norms only by
    the order of their sums."""
    for name, args in calls(dtype, 200):
        run = kernel(name, dtype)
        other = flat(run(*args))
        with emulator.configured(linear_lanes=True):
            for got, want in zip(flat(run(*args)), other, strict=True):
                torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tails_read_beyond_the_end_and_write_inside(emulator, dtype):
    """Sizes that fill no load are padded with zeros; outputs lie between guards."""
    for name, args in calls(dtype, 100):
        before = emulator.padded_loads
        outputs = flat(kernel(name, dtype)(*args))
        assert emulator.padded_loads > before, name
        for value in outputs:
            assert not (value == 12345.0).any(), f"{name} left an element unwritten"


def test_violations_are_noticed(emulator):
    assert emulator.reports_violations()


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", ["silu_and_mul", "gelu_and_mul", "fused_add_rms_norm"])
def test_case_table(emulator, op, dtype, parts):
    """The conformance tests run the table with three parts."""
    with emulator.configured(parts=parts):
        for case in cases(op):
            check_parity(case, dtype)


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_qk_norm_case_table(emulator, dtype, parts):
    """The kernel takes weights of the dtype of the heads, so the table's are given that dtype."""
    with emulator.configured(parts=parts):
        for case in cases("qk_norm_rope"):
            check_parity(_with_equal_dtypes(case), dtype)


def _with_equal_dtypes(case):
    def args(dtype, device):
        made = list(case.args(dtype, device))
        made[4:6] = (value.to(dtype) for value in made[4:6])
        return tuple(made)

    return type(case)(case.op, case.id, args, case.tolerance)


WITH_KERNEL = ("silu_and_mul", "gelu_and_mul", "fused_add_rms_norm")


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.op in WITH_KERNEL], ids=str)
def test_accuracy(emulator, subject, dtype, regime):
    """No further from fp64 than the reference, which says more of our formulas than of the device:
    its special functions are the C library's here."""
    check_accuracy(subject, regime, dtype)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("silu_and_mul", (torch.randn(2, 8).bfloat16(),)),
        ("silu_and_mul", (torch.randn(8),)),
        ("silu_and_mul", (torch.randn(2, 7),)),
        ("fused_add_rms_norm", (torch.randn(2, 8), torch.randn(2, 6), torch.ones(8), *NORM)),
        ("fused_add_rms_norm", (torch.randn(2, 8), torch.randn(2, 8), torch.ones(6), *NORM)),
        ("fused_add_rms_norm", (*torch.randn(2, 1, 16385), torch.ones(16385), *NORM)),
        (
            "fused_add_rms_norm",
            (*torch.randn(2, 1, 16385)[:, None], torch.ones(16385), *NORM),
        ),
        (
            "qk_norm",
            (torch.randn(2, 3, 8), torch.randn(3, 3, 8), torch.ones(8), torch.ones(8), *NORM),
        ),
    ],
    ids=["dtype", "rank", "odd", "residual", "weight", "rank-1", "too-long", "tokens"],
)
def test_glue_refuses(emulator, name, args):
    with pytest.raises(RuntimeError, match="the glue returned"):
        kernel(name, torch.float32)(*args)
