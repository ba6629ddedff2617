# SPDX-License-Identifier: Apache-2.0
"""Theme empty/zero/degenerate."""

import pytest
import torch
from vllm_ops.shared import GemmaRMSNorm, LayerNorm, RMSNorm, RMSNormGated
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import NORM, assert_within, flat
from vllm_ops.shared.testing.accuracy import errors
from vllm_ops.shared.testing.cases import cases
from vllm_ops.shared.testing.inputs import make

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
NORMS = ("rms_norm", "fused_add_rms_norm", "layer_norm", "rms_norm_gated")


def norm_args(name, x, eps, dtype=None):
    weight = make(x.shape[-1:], dtype or x.dtype, seed=5) * 0.1 + 1
    return {
        "rms_norm": (x, weight, eps),
        "fused_add_rms_norm": (x, x.clone(), weight, eps),
        "layer_norm": (x, weight, None, eps),
        "rms_norm_gated": (x, torch.ones_like(x), weight, eps),
    }[name]


EMPTY = [case for case in cases() if case.id.startswith(("0x", "3x0x", "4x0", "empty"))]


@pytest.mark.parametrize("case", EMPTY, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zero_tokens(run, case, dtype):
    """An empty prompt, an idle data-parallel rank: an empty result of the right shape and dtype."""
    args = case.args(dtype, "cpu")
    expected = flat(OPS[case.op].native(*case.args(dtype, "cpu")))
    for got, want in zip(flat(run(case.op, *args)), expected, strict=True):
        assert (got.shape, got.dtype, got.numel()) == (want.shape, dtype, 0)


def test_every_operator_has_an_empty_case():
    """Of the in-place ones, those that have cases of their own."""
    assert {case.op for case in EMPTY} == {case.op for case in cases()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("eps", [0.0, 1e-46, 1e-6])
@pytest.mark.parametrize("name", NORMS)
def test_eps_0_and_a_row_of_zeros(run, name, eps, dtype):
    """Zeros, not 0 times infinity; 1e-46 is 0 in fp32. The row beside it is what it always is."""
    x = make((3, 100), dtype)
    x[1] = 0
    outputs = flat(run(name, *norm_args(name, x, eps)))
    assert bool((outputs[0][1] == 0).all())
    expected = flat(OPS[name].native(*norm_args(name, x[::2], eps)))
    for got, want in zip(outputs, expected, strict=True):
        assert_within(got[::2], want, NORM)


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("eps", [0.0, 1e-46, 1e-40])
@pytest.mark.parametrize("scale", [1e-30, 1e-24, 1e-23, 3e-23, 1e-21, 1e-19])
@pytest.mark.parametrize("name", NORMS)
def test_eps_0_and_squares_that_vanish_in_fp32(run, name, scale, eps, dtype):
    """The mean square is an fp32 number, a subnormal one or 0, whatever it was summed in. With an
    fma each square is rounded with the sum, so the few bits of such a mean may differ in the last,
    which can show as two ulps of bf16."""
    args = norm_args(name, make((5, 520), dtype, scale=scale), eps)
    got, want = flat(run(name, *args))[0], flat(OPS[name].native(*args))[0]
    torch.testing.assert_close(got, want, rtol=2**-6, atol=0.0)
    if scale == 1e-30 and eps < 1e-40:
        assert bool((got == 0).all())


@pytest.mark.parametrize("name", NORMS)
def test_gradient_of_a_row_of_zeros_with_eps_0(name):
    x = make((3, 100), torch.float64)
    x[1] = 0
    args = tuple(
        value.detach().clone().requires_grad_() if isinstance(value, torch.Tensor) else value
        for value in norm_args(name, x, 0.0)
    )
    outputs = flat(OPS[name].call(*args))
    sum(value.sum() for value in outputs).backward()
    for value in args:
        if isinstance(value, torch.Tensor):
            assert bool(value.grad.isfinite().all())


def test_constant_row_of_layer_norm_with_eps_0_gives_the_bias(run):
    bias = make((64,), torch.float32, seed=3)
    x = torch.full((2, 64), 3.0)
    assert torch.equal(run("layer_norm", x, None, bias, 0.0), bias.expand(2, 64))


@pytest.mark.parametrize("eps", [-1e-6, float("nan")])
@pytest.mark.parametrize("layer", [RMSNorm, GemmaRMSNorm, LayerNorm, RMSNormGated])
def test_eps_below_0_is_refused(layer, eps):
    with pytest.raises(ValueError, match=r"norm.*: eps must not be negative, got"):
        layer(64, eps)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_spiky_rows(run, name, dtype):
    """One element of 1e4 among thousands near 0, and a row of zeros: eps is added to the mean
    square before the root, so the spike comes out as sqrt(n) and the rest keeps its precision."""
    x = make((4, 4096), dtype, scale=1e-3)
    x[1, 17] = 1e4
    x[2] = 0
    args = norm_args(name, x, 1e-6)
    got = run(name, *args)
    exact = OPS[name].native(*(v.double() if isinstance(v, torch.Tensor) else v for v in args))
    native = OPS[name].native(*args)
    floor = 1.0 if name == "layer_norm" else 0.0
    largest = errors(native, exact, floor).largest
    assert errors(got, exact, floor).largest <= largest * 1.05 + 0.3
    assert bool((got[2] == 0).all())
    spike = (got[1, 17] / args[1][17]).item()
    assert spike == pytest.approx(64, rel=0.02)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_one_column(run, name, dtype):
    x = make((5, 1), dtype)
    for got, want in zip(
        flat(run(name, *norm_args(name, x, 1e-6))),
        flat(OPS[name].native(*norm_args(name, x, 1e-6))),
        strict=True,
    ):
        assert_within(got, want, NORM)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", NORMS)
def test_one_bad_row_stays_one_bad_row(run, name, value, dtype):
    """NaN and infinity go where they go in native, and never into another row."""
    x = make((3, 520), dtype)
    x[1, 300] = value
    outputs = flat(run(name, *norm_args(name, x, 1e-6)))
    expected = flat(OPS[name].native(*norm_args(name, x, 1e-6)))
    for got, want in zip(outputs, expected, strict=True):
        assert bool(got[::2].isfinite().all())
        assert not bool(got[1].isfinite().all())
        assert_within(got, want, NORM)
