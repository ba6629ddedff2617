# SPDX-License-Identifier: Apache-2.0
"""Every CPU kernel against fp64: its largest, mean and signed mean error are not above native's.

Without a kernel there is nothing to compare, and the test says so and skips. What needs no kernel
is that the comparison notices a bad one: those tests degrade the reference and expect a failure.
"""

import math

import pytest
import torch
from helpers.kernels import need_kernel
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing.accuracy import SUBJECTS, check_accuracy, check_chain, errors, ulp
from vllm_ops.shared.testing.accuracy_subjects import REGIMES

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def one_thread():
    """Thousands of small calls, whose results do not depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_kernel_is_as_near_to_fp64_as_native(subject, regime, dtype, record_property):
    need_kernel(subject.op)
    kernel, native = check_accuracy(subject, regime, dtype)
    record_property("kernel", str(kernel))
    record_property("native", str(native))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_kernel_is_as_near_to_fp64_after_72_applications(subject, dtype, record_property):
    need_kernel(subject.op)
    kernel, native = check_chain(subject, dtype)
    record_property("kernel", str(kernel))
    record_property("native", str(native))


def subject(name):
    return next(one for one in SUBJECTS if str(one) == name)


def exactly(op, *args):
    wide = (arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args)
    return OPS[op].native(*wide)


def scaled(op, factor):
    def run(*args):
        return (exactly(op, *args) * factor).to(args[0].dtype)

    return run


def shifted(op, ulps):
    def run(*args):
        exact = exactly(op, *args)
        return (exact + ulps * ulp(exact, args[0].dtype)).to(args[0].dtype)

    return run


def truncated(op):
    """Rounds towards zero instead of to nearest."""

    def run(*args):
        exact = exactly(op, *args)
        rounded = exact.to(args[0].dtype)
        too_far = rounded.double().abs() > exact.abs()
        step = ulp(exact, args[0].dtype) * exact.sign()
        return torch.where(too_far, rounded.double() - step, rounded.double()).to(args[0].dtype)

    return run


@pytest.mark.parametrize(
    ("name", "run", "complaint"),
    [
        ("silu_and_mul", scaled("silu_and_mul", 1 + 2**-9), "mean error, signed mean in magnitude"),
        ("gelu", truncated("gelu"), "largest error, mean error, signed mean in magnitude"),
        ("rms_norm-llama", truncated("rms_norm"), "signed mean in magnitude"),
        ("mul_and_silu", scaled("mul_and_silu", 1 + 2**-12), "signed mean in magnitude"),
        ("mul_and_silu", shifted("mul_and_silu", 0.05), "signed mean"),
    ],
)
def test_the_comparison_notices_a_worse_kernel(name, run, complaint):
    with pytest.raises(AssertionError, match=rf"worse than native in .*{complaint}\n"):
        check_accuracy(subject(name), "normal", torch.bfloat16, run=run)


def test_the_comparison_notices_a_drift_that_one_call_hides():
    one = subject("layer_norm-affine")

    def drifting(*args):
        return OPS[one.op].native(*args) * (1 + 1e-7)

    with pytest.raises(AssertionError, match=r"worse than native in .*signed mean in magnitude"):
        check_chain(one, torch.float32, run=drifting)


def test_the_comparison_notices_an_infinity_where_native_has_a_number():
    def overflowing(x):
        return OPS["relu2"].native(x).masked_fill(x > 3, float("inf"))

    with pytest.raises(AssertionError, match="NaN or infinity in other places"):
        check_accuracy(subject("relu2"), "normal", torch.float32, run=overflowing)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_native_passes_its_own_comparison(dtype):
    for one in SUBJECTS:
        check_accuracy(one, "normal", dtype, run=OPS[one.op].native)


def test_errors_are_counted_in_ulps():
    exact = torch.tensor([[1.0, -1.0, 4.0], [2.0**-20, 1.0, 1.0]], dtype=torch.float64)
    actual = torch.tensor([[1.0, -1.0 - 2**-7, 4.0 - 2**-5], [0.0, math.inf, 1.0]]).bfloat16()
    found = errors(actual, exact, floor=2.0**-10)
    small = 2.0**-20 / 2.0**-17
    assert found.largest == 1.0
    assert found.row_largest == pytest.approx((1 + small) / 2)
    assert found.mean == pytest.approx((1 + 1 + small) / 6)
    assert found.bias == pytest.approx((-1 - 2 - small + 1) / 6)
    assert found.growth == pytest.approx((1 - 1 - small) / 6)
