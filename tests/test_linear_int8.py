# SPDX-License-Identifier: Apache-2.0
"""The linear layer with an int8 weight: quantisation, kernel, layer, errors."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers.kernels import need_kernel
from torch import nn
from vllm_ops.shared import Linear, LinearInt8, functional, quantize_int8

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def operands(rows, k, n, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, k, generator=generator).to(dtype)
    weight, scale = quantize_int8(torch.randn(n, k, generator=generator) * k**-0.5)
    return x, weight, scale, torch.randn(n, generator=generator).to(dtype)


@pytest.mark.skipif("VLLM_OPS_CPU_ISA" in os.environ, reason="an instruction set is forced already")
@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_on_every_instruction_set(isa):
    need_kernel("linear_int8")
    flags = Path("/proc/cpuinfo").read_text()
    flag = {"baseline": "", "avx2": " avx2 ", "avx512": " avx512f "}[isa]
    if flag not in flags:
        pytest.skip(f"this CPU has no {isa}")
    environment = {**os.environ, "VLLM_OPS_CPU_ISA": isa}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    command += ["tests/test_parity.py", "-k", "int8 and not compiles and not opcheck"]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64], ids=str)
def test_quantisation_is_the_nearest_step(dtype):
    weight = torch.randn(40, 300, generator=torch.Generator().manual_seed(2)).to(dtype)
    weight[3] = 0
    weight[4] *= 1e-6
    quantised, scale = quantize_int8(weight)
    assert (quantised.dtype, scale.dtype) == (torch.int8, torch.float32)
    assert int(quantised.min()) >= -127
    assert (quantised.abs().amax(1)[[*range(3), *range(4, 40)]] == 127).all()
    error = (quantised * scale[:, None].double() - weight.double()).abs()
    assert (error <= scale[:, None].double() * (0.5 + 1e-5)).all()
    assert not quantised[3].any()


@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 3e38])
def test_quantisation_of_extreme_weights(value):
    quantised, scale = quantize_int8(torch.full((2, 3), value))
    assert torch.isfinite(scale).all()
    assert (scale > 0).all()
    near = quantised * scale[:, None].double()
    assert ((near - torch.tensor(value).double()).abs() <= scale.max() * 0.5001).all()


def test_quantisation_of_nothing():
    for shape in ((0, 4), (4, 0)):
        quantised, scale = quantize_int8(torch.ones(shape))
        assert quantised.shape == shape
        assert scale.shape == shape[:1]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [(1, 4096, 96), (8, 576, 384), (37, 1000, 130), (300, 64, 40)])
def test_near_fp64(size, dtype):
    need_kernel("linear_int8")
    x, weight, scale, bias = operands(*size, dtype)
    exact = F.linear(x.double(), weight.double()) * scale + bias.double()
    ours = (functional.linear_int8(x, weight, scale, bias).double() - exact).abs()
    native = torch.ops.vllm_ops_native.linear_int8(x, weight, scale, bias)
    theirs = (native.double() - exact).abs()
    # In half precision both round once, and a sum next to the middle of two values may go either
    # way; in fp32 both only sum, each in its order, here over lanes and there as MKL likes.
    slack = 1.5 if dtype == torch.float32 else 1.001
    assert ours.max() <= theirs.max() * slack
    assert ours.mean() <= theirs.mean() * slack


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("k", "n"), [(576, 40), (1100, 33), (64, 9)])
def test_a_row_does_not_depend_on_the_others(k, n, dtype):
    need_kernel("linear_int8")
    x, weight, scale, bias = operands(700, k, n, dtype)
    whole = functional.linear_int8(x, weight, scale, bias)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16, 17, 64, 127, 128, 129, 257, 699):
        part = functional.linear_int8(x[-rows:], weight, scale, bias)
        assert torch.equal(part, whole[-rows:]), rows
    some = functional.linear_int8(x[:3], weight[5:], scale[5:], bias[5:])
    assert torch.equal(some, whole[:3, 5:])


def test_threads_do_not_change_a_bit():
    need_kernel("linear_int8")
    before = torch.get_num_threads()
    call = operands(41, 700, 530, torch.bfloat16)
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(functional.linear_int8(*call))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values_travel(dtype):
    x, weight, scale, bias = operands(6, 100, 40, dtype)
    x[1, 3], x[2, 99], scale[7], bias[9] = float("nan"), float("inf"), float("inf"), float("nan")
    ours = functional.linear_int8(x, weight, scale, bias)
    native = torch.ops.vllm_ops_native.linear_int8(x, weight, scale, bias)
    assert torch.equal(ours.isnan(), native.isnan())
    assert torch.equal(ours.isinf(), native.isinf())


@pytest.mark.parametrize("kind", [nn.Linear, Linear], ids=["nn.Linear", "Linear"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_layer_from_a_layer(kind, bias):
    linear = kind(48, 20, bias=bias, dtype=torch.bfloat16).eval()
    layer = LinearInt8.from_linear(linear)
    assert (layer.in_features, layer.out_features, layer.training) == (48, 20, False)
    assert layer.bias is linear.bias
    x = torch.randn(5, 48).bfloat16()
    quantised, scale = quantize_int8(linear.weight)
    with torch.no_grad():
        expected = functional.linear_int8(x, quantised, scale, linear.bias)
        assert torch.equal(layer(x), expected)
        # An element of the weight is off by at most half a step.
        bound = 0.5 * scale * x.float().abs().sum(1, keepdim=True) + 0.02
        assert ((layer(x) - linear(x)).abs() <= bound).all()


def test_layer_survives_copies_state_and_dtypes():
    layer = LinearInt8.from_linear(nn.Linear(48, 20))
    x = torch.randn(3, 48)
    expected = layer(x)
    blank = LinearInt8(48, 20)
    blank.load_state_dict(layer.state_dict())
    for other in (blank, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):  # noqa: S301
        assert torch.equal(other(x), expected)
    half = copy.deepcopy(layer).half()
    assert (half.weight.dtype, half.scale.dtype) == (torch.int8, torch.float32)
    assert torch.equal(half.scale, layer.scale)
    assert half(x.half()).dtype == torch.float16


def test_layer_starts_at_zero_and_says_what_it_is():
    layer = LinearInt8(8, 4)
    assert not layer(torch.randn(3, 8)).any()
    assert "in_features=8, out_features=4, bias=True" in repr(layer)


def test_errors_name_what_is_wrong():
    x, weight, scale, bias = operands(2, 8, 4, torch.float32)
    op = "linear_int8:"
    calls = [
        ((x, weight.float(), scale), TypeError, f"{op} weight must be int8, got float32"),
        ((x, weight[0], scale), ValueError, f"{op} weight must have 2 dimensions, got 1"),
        ((x[:, :7], weight, scale), ValueError, f"{op} x must have 8 elements in the last dim"),
        ((x, weight, scale.half()), TypeError, f"{op} scale must be float32, got float16"),
        ((x, weight, scale[:3]), ValueError, f"{op} scale must have 4 elements, got 3"),
        ((x, weight, scale, bias[:3]), ValueError, f"{op} bias must have 4 elements, got 3"),
        ((x, weight, scale, bias.half()), TypeError, f"{op} bias must be float32, got float16"),
        ((torch.ones(()), weight, scale), ValueError, f"{op} x must have at least 1 dimension"),
        ((x.int(), weight, scale), TypeError, f"{op} x must be floating point"),
    ]
    for args, kind, message in calls:
        with pytest.raises(kind, match=message):
            functional.linear_int8(*args)
        with pytest.raises(RuntimeError, match=message):
            torch.ops.vllm_ops.linear_int8(*args)
    for weight, kind, message in (
        (torch.ones(2, 2, dtype=torch.int32), TypeError, "quantize_int8: weight must be floating"),
        (torch.ones(2), ValueError, "quantize_int8: weight must have 2 dimensions, got 1"),
        (torch.full((2, 2), float("nan")), ValueError, "quantize_int8: weight must be finite"),
    ):
        with pytest.raises(kind, match=message):
            quantize_int8(weight)
    for sizes, kind, message in (
        ((0, 4), ValueError, "linear_int8: in_features must be above 0, got 0"),
        ((8, 4.0), TypeError, "linear_int8: out_features must be an int, got float"),
    ):
        with pytest.raises(kind, match=message):
            LinearInt8(*sizes)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_are_those_of_the_steps_times_the_scale(dtype):
    x, weight, scale, bias = operands(5, 40, 12, dtype)
    given = [v.requires_grad_() for v in (x, scale, bias)]
    ours = torch.autograd.grad(functional.linear_int8(x, weight, scale, bias).sum(), given)
    dense = (weight.float() * scale[:, None]).sum(0).expand(5, -1)
    torch.testing.assert_close(ours[0].float(), dense, rtol=1e-2, atol=1e-2)
    assert [grad.dtype for grad in ours] == [dtype, torch.float32, dtype]


def test_compiles_without_a_break():
    layer = LinearInt8.from_linear(nn.Linear(32, 48, dtype=torch.bfloat16))
    compiled = torch.compile(layer, fullgraph=True)
    x = torch.randn(4, 3, 32).bfloat16()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x), rtol=0, atol=0)
