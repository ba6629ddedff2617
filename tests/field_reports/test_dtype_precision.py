# SPDX-License-Identifier: Apache-2.0
"""Theme dtype/precision."""

import pytest
import torch
from helpers.kernels import need_kernel
from vllm_ops.shared import GemmaRMSNorm, RMSNorm, SiluAndMul, custom_ops, explain
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import CASES, NORM, assert_within, flat
from vllm_ops.shared.testing.accuracy import errors
from vllm_ops.shared.testing.inputs import make

HALF = (torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("layer", [RMSNorm, GemmaRMSNorm], ids=lambda kind: kind.__name__)
def test_one_contract_for_native_and_kernel(layer, dtype):
    """The same module, the same inputs, through both paths."""
    need_kernel("rms_norm")
    x, residual = make((64, 2048), dtype), make((64, 2048), dtype, seed=1)
    native, kernel = layer(2048, enabled=False, dtype=dtype), layer(2048, dtype=dtype)
    assert (native.decision.native, kernel.decision.native) == (True, False)
    for args in ((x,), (x, residual)):
        for got, want in zip(flat(kernel(*args)), flat(native(*args)), strict=True):
            assert_within(got, want, NORM)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_one_rounding_at_the_end_where_the_contract_says_so(run, dtype):
    """Nearer to fp64 than half an ulp and a bit; the Llama order, which rounds twice, is not."""
    x, weight = make((64, 2048), dtype), make((2048,), dtype, seed=2)
    exact = OPS["rms_norm"].native(x.double(), weight.double(), 1e-6)
    once = errors(run("rms_norm", x, weight, 1e-6, None, 0.0, False), exact)
    twice = errors(run("rms_norm", x, weight, 1e-6), exact)
    assert once.largest < 0.51
    assert 0.9 < twice.largest < 1.6


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_residual_add_rounds_as_the_unfused_pair(run, dtype):
    x, residual = make((64, 2048), dtype), make((64, 2048), dtype, seed=1, scale=30)
    weight = make((2048,), dtype, seed=2)
    normed, total = run("fused_add_rms_norm", x, residual, weight, 1e-6)
    assert torch.equal(total, x + residual)
    assert torch.equal(normed, run("rms_norm", total, weight, 1e-6))


def test_order_of_the_weight_multiply_is_part_of_the_contract(run):
    """bf16 Mistral: the two orders differ in a quarter of the elements, so say which it is."""
    x, weight = make((64, 4096), torch.bfloat16), make((4096,), torch.bfloat16, seed=2)
    llama = run("rms_norm", x, weight, 1e-5)
    gemma = run("rms_norm", x, weight, 1e-5, None, 0.0, False)
    assert 0.1 < (llama != gemma).double().mean() < 0.5
    assert_within(llama, OPS["rms_norm"].native(x, weight, 1e-5), NORM)
    assert_within(gemma, OPS["rms_norm"].native(x, weight, 1e-5, None, 0.0, False), NORM)


def activations_of_a_model():
    """bf16 [1, 51, 1024] with a few channels hundreds of times the rest, as residuals have."""
    x = make((1, 51, 1024), torch.bfloat16)
    x[..., [3, 400, 777]] *= 300
    x[0, 0] *= 50
    return x


@pytest.mark.parametrize(
    "name", ["rms_norm", "layer_norm", "silu_and_mul", "gelu", "gelu_tanh", "quick_gelu"]
)
def test_parity_on_large_magnitudes_and_tails(run, name):
    x = activations_of_a_model()
    weight = make((1024,), torch.bfloat16, seed=5)
    rest = {"rms_norm": (weight, 1e-6), "layer_norm": (weight, weight, 1e-5)}.get(name, ())
    tolerance = next(case.tolerance for case in CASES if case.op == name)
    assert_within(run(name, x, *rest), OPS[name].native(x, *rest), tolerance, name)


def test_eps_does_not_depend_on_the_dtype(run):
    """x = randn * 0.058: with the eps of the dtype, as of F.rms_norm(eps=None), bf16 is far off."""
    x = make((8, 32), torch.float64, scale=0.058)
    exact = OPS["rms_norm"].native(x, None, 1e-6)
    for dtype in (torch.float32, *HALF):
        got = run("rms_norm", x.to(dtype), None, 1e-6).double()
        torch.testing.assert_close(got, exact, rtol=0, atol=2e-2)
    assert RMSNorm(32, dtype=torch.bfloat16).eps == RMSNorm(32).eps == 1e-6
    with pytest.raises(TypeError, match="rms_norm: eps must be a number, got NoneType"):
        OPS["rms_norm"].call(x, None, None)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", ["rms_norm", "fused_add_rms_norm", "layer_norm", "rms_norm_gated"])
def test_large_activations_are_squared_in_fp32(run, name, dtype):
    """60,000 squared overflows fp16 and its sum loses bf16's bits."""
    x = make((4, 512), torch.float64).sign().mul(60_000).to(dtype)
    args = {
        "rms_norm": (x, None, 1e-6),
        "fused_add_rms_norm": (x * 0.5, x * 0.5, None, 1e-6),
        "layer_norm": (x, None, None, 1e-5),
        "rms_norm_gated": (x, None, None, 1e-5),
    }[name]
    got = flat(run(name, *args))[0]
    torch.testing.assert_close(got.abs().float(), torch.ones(4, 512), rtol=0, atol=0.2)


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "rms_norm_gated"])
def test_kernel_takes_a_weight_of_another_dtype(name, dtype, weight_dtype):
    need_kernel(name)
    x, weight = make((4, 256), dtype), make((256,), weight_dtype, seed=2)
    args = {
        "rms_norm": (x, weight, 1e-6),
        "layer_norm": (x, weight, weight, 1e-5),
        "rms_norm_gated": (x, None, weight, 1e-5),
    }[name]
    got = OPS[name].overload(*args)
    assert got.dtype == dtype
    assert_within(got, OPS[name].native(*args), NORM)


def test_fall_back_is_reported():
    layer = RMSNorm(64, dtype=torch.float32, enabled=False)
    layer(make((2, 64), torch.bfloat16))
    (row,) = explain(layer)
    assert row.method == "forward_native"
    assert "disabled" in row.reason


@pytest.mark.parametrize("lead", [(4,), (2, 3)])
@pytest.mark.parametrize(
    ("dtype", "weight_dtype"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float16,) * 2],
)
def test_output_has_the_dtype_of_the_input(run, dtype, weight_dtype, lead):
    """Also the reports of a bf16 weight and of a 3-D input."""
    x, weight = make((*lead, 64), dtype), make((64,), weight_dtype, seed=2)
    assert run("rms_norm", x, weight, 1e-6).dtype == dtype
    assert run("layer_norm", x, weight, None, 1e-6).dtype == dtype
    for value in run("fused_add_rms_norm", x, x.clone(), weight, 1e-6):
        assert (value.dtype, value.shape) == (dtype, x.shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "gelu_new", "gelu_fast"])
def test_gelu_between_minus_6_and_minus_4_and_below(run, name, dtype):
    """1 + tanh and 1 + erf cancel there; the relative precision of the tail stays."""
    x = torch.linspace(-9, -4, 4096, dtype=torch.float64).view(2, -1).to(dtype)
    exact = OPS[name].native(x.double())
    relative = ((run(name, x).double() - exact) / exact).abs().max().item()
    assert relative < (2e-5 if dtype == torch.float32 else 2**-8)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gated_gelu_has_the_tail_too(run, approximate):
    x = torch.tensor([[-5.5, 1e6]])
    got = run("gelu_and_mul", x, approximate).item()
    exact = OPS["gelu_and_mul"].native(x.double(), approximate).item()
    assert got == pytest.approx(exact, rel=1e-5)


def test_one_operator_can_be_turned_off():
    """A device where one kernel misbehaves: that one goes native, the others don't."""
    with custom_ops(["all", "-rms_norm"]):
        norm, gate = RMSNorm(64), SiluAndMul()
    assert norm.decision.native
    assert "disabled" in norm.decision.reason
    assert gate.decision.method == SiluAndMul().decision.method
