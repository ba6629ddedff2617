# SPDX-License-Identifier: Apache-2.0
"""The activations against torch.nn.functional and transformers, which nobody here wrote.

In fp64 no rounding hides a difference of formula, so every reference is held against its oracle to
a few fp64 ulps. In fp32 and half precision a reference is equal bit for bit where it rounds where
the oracle does. It does not everywhere, on purpose:

- transformers writes gelu_new, gelu_fast, quick_gelu, xielu and the gpt-oss gate out in elementary
  operations, each rounded to bf16; here they round once. So they are held to be nearer to fp64.
- both oracles compute GELU as ``1 + erf`` and ``1 + tanh``, which cancel below -4. So these differ
  there, and nowhere else by more than the last bits of two fp32 implementations.
"""

import inspect
import types

import pytest
import torch
import torch.nn.functional as F
from vllm_ops.shared import get_act_and_mul_fn, get_act_fn
from vllm_ops.shared import layers as L
from vllm_ops.shared.layers.activation_names import ACTIVATIONS, GATED_ACTIVATIONS
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import ELEMENTWISE, Tolerance, assert_within
from vllm_ops.shared.testing.accuracy import errors
from vllm_ops.shared.testing.tolerances import CANCELLING

HALF = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, *HALF)

UNCANCELLED = {torch.float32: -1.0, torch.bfloat16: -3.0, torch.float16: -1.0}
"""From where on ``1 + erf`` and ``1 + tanh`` keep more bits than the dtype shows."""

AGAINST_TORCH = {
    torch.float32: ELEMENTWISE,
    torch.bfloat16: ELEMENTWISE,
    torch.float16: Tolerance(equal=0.999, ulps=2),
}
"""fp16 has 3 bits more than bf16, so the 3 to 6 fp32 ulps of torch's tanh show 8 times as often,
and a flip before the product of a gated activation can be two after it."""


def transformers_act(name, dtype):
    activations = pytest.importorskip(
        "transformers.activations", reason="transformers is not installed"
    )
    return activations.ACT2FN[name].to(dtype)


def oracle_module(name):
    return pytest.importorskip(
        f"transformers.models.{name}.modeling_{name}", reason="transformers is not installed"
    )


def grid(dtype, low=-12.0, high=12.0, columns=512):
    """Rows over the whole interval, where the tails are."""
    return torch.linspace(low, high, 64 * columns, dtype=torch.float64).view(-1, 64).T.to(dtype)


def normal(dtype, columns=1024, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(64, columns, generator=generator, dtype=torch.float64) * scale).to(dtype)


# ---- pointwise ----

POINTWISE = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_new": ("gelu_new", "gelu_accurate"),
    "gelu_fast": ("gelu_fast",),
    "gelu_tanh": ("gelu_pytorch_tanh", "gelu_python_tanh"),
    "quick_gelu": ("quick_gelu",),
    "relu2": ("relu2",),
}
PAIRS = [(op, name) for op, names in POINTWISE.items() for name in names]


@pytest.mark.parametrize(("op", "name"), PAIRS)
def test_formula_in_fp64(op, name):
    x = grid(torch.float64)
    expected = transformers_act(name, torch.float64)(x)
    torch.testing.assert_close(OPS[op].native(x), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_relu2_bit_for_bit(dtype):
    x = grid(dtype)
    assert torch.equal(OPS["relu2"].native(x), transformers_act("relu2", dtype)(x))


def test_quick_gelu_bit_for_bit_in_fp32():
    x = grid(torch.float32)
    assert torch.equal(OPS["quick_gelu"].native(x), transformers_act("quick_gelu", x.dtype)(x))


def test_gelu_bit_for_bit_in_bf16_where_erf_does_not_cancel():
    x = grid(torch.bfloat16, low=UNCANCELLED[torch.bfloat16])
    assert torch.equal(OPS["gelu"].native(x), F.gelu(x))


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "gelu_fast", "gelu_tanh"])
def test_last_bits_only_in_fp32_where_nothing_cancels(name):
    x = grid(torch.float32, low=UNCANCELLED[torch.float32])
    expected = F.gelu(x, approximate="none" if name == "gelu" else "tanh")
    torch.testing.assert_close(OPS[name].native(x), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_within_the_contract_of_torch_on_normal_values(name, dtype):
    """Torch rounds once as well. Clamped, as 1 + erf and 1 + tanh lose bits below."""
    x = normal(dtype).clamp(min=UNCANCELLED[dtype])
    expected = F.gelu(x, approximate="none" if name == "gelu" else "tanh")
    assert_within(OPS[name].native(x), expected, AGAINST_TORCH[dtype], name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("op", "name"), PAIRS)
def test_not_further_from_fp64_than_transformers(op, name, dtype):
    x = grid(dtype, low=-10.0)
    exact = OPS[op].native(x.double())
    ours = errors(OPS[op].native(x), exact, 1e-30)
    theirs = errors(transformers_act(name, dtype)(x), exact, 1e-30)
    assert ours.mean <= theirs.mean * 1.001, f"{ours}\n{theirs}"
    assert ours.largest <= theirs.largest * 1.001, f"{ours}\n{theirs}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("op", "expected_of_torch"),
    [("gelu", F.gelu), ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))],
)
def test_the_tail_that_cancels_elsewhere(op, expected_of_torch, dtype):
    """On [-8, -4] the reference keeps its relative precision; torch's result is off by half of the
    value somewhere, or 0."""
    x = torch.linspace(-8, -4, 4096, dtype=torch.float64).view(2, -1).to(dtype)
    exact = OPS[op].native(x.double())
    bound = {torch.float32: 256, torch.bfloat16: 0.502, torch.float16: 0.6}[dtype]
    assert errors(OPS[op].native(x), exact).largest < bound
    if dtype == torch.float16:
        return  # fp16 is subnormal here: what torch loses lies below its resolution
    lost = ((expected_of_torch(x).double() - exact) / exact).abs().max()
    assert lost > 0.5


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
def test_xielu_against_transformers(dtype):
    oracle = transformers_act("xielu", dtype)
    x = grid(dtype)
    layer = L.XIELU(dtype=dtype)
    layer.load_state_dict(oracle.state_dict())
    with torch.no_grad():
        expected, got = oracle(x), layer(x)
        arguments = (x, oracle.alpha_p, oracle.alpha_n, float(oracle.beta), float(oracle.eps))
        reference = OPS["xielu"].native(*arguments)
    if dtype == torch.float64:
        torch.testing.assert_close(reference, expected, rtol=1e-13, atol=1e-14)
        return
    assert_within(got, reference, CANCELLING, "xielu")
    if dtype == torch.float32:
        assert torch.equal(reference, expected)
        return
    # transformers rounds p, n and every product to half precision
    wide = (a.double() if isinstance(a, torch.Tensor) else a for a in arguments)
    exact = OPS["xielu"].native(*wide)
    assert errors(reference, exact).mean < errors(expected, exact).mean


def test_xielu_starts_as_transformers_does():
    oracle, layer = transformers_act("xielu", torch.float32), L.XIELU(dtype=torch.bfloat16)
    assert list(layer.state_dict()) == list(oracle.state_dict())
    for name, value in layer.state_dict().items():
        torch.testing.assert_close(value.float(), oracle.state_dict()[name], rtol=1e-2, atol=0)


# ---- gated ----


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
@pytest.mark.parametrize(
    ("op", "extra", "oracle"),
    [
        ("silu_and_mul", (), lambda a, b: F.silu(a) * b),
        ("mul_and_silu", (), lambda a, b: a * F.silu(b)),
        ("fatrelu_and_mul", (0.0,), lambda a, b: F.relu(a) * b),
        ("fatrelu_and_mul", (0.25,), lambda a, b: torch.where(a > 0.25, a, 0.0).to(a.dtype) * b),
    ],
)
def test_gated_bit_for_bit(op, extra, oracle, dtype):
    """Eager torch rounds the activation, then the product, and so does the reference."""
    x = normal(dtype, scale=3.0)
    gate, up = x.chunk(2, -1)
    assert torch.equal(OPS[op].native(x, *extra), oracle(gate, up))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_and_mul_against_torch(approximate, dtype):
    x = normal(dtype)
    gate, up = x.chunk(2, -1)
    gate.clamp_(min=UNCANCELLED[dtype])
    expected = F.gelu(gate, approximate=approximate) * up
    got = OPS["gelu_and_mul"].native(x, approximate)
    assert_within(got, expected, AGAINST_TORCH[dtype], approximate)
    if approximate == "none" and dtype == torch.bfloat16:
        assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
@pytest.mark.parametrize(("alpha", "limit"), [(1.702, 7.0), (1.5, 1.0)])
def test_swigluoai_against_gpt_oss(alpha, limit, dtype):
    experts = oracle_module("gpt_oss").GptOssExperts
    x = normal(dtype, scale=3.0)
    expected = experts._apply_gate(types.SimpleNamespace(alpha=alpha, limit=limit), x)
    reference = OPS["swigluoai_and_mul"].native(x, alpha, limit)
    if dtype == torch.float64:
        torch.testing.assert_close(reference, expected, rtol=1e-14, atol=0)
    elif dtype == torch.float32:
        assert torch.equal(reference, expected)
    else:  # transformers rounds after every operation
        exact = OPS["swigluoai_and_mul"].native(x.double(), alpha, limit)
        assert errors(reference, exact).mean < errors(expected, exact).mean / 1.5


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
@pytest.mark.parametrize("limit", [7.0, 1.3])
def test_silu_and_mul_with_clamp_against_deepseek(limit, dtype):
    """Bit for bit, the limit rounded to the dtype as eager torch rounds it."""
    experts = oracle_module("deepseek_v4").DeepseekV4Experts
    x = normal(dtype, scale=3.0)
    expected = experts._apply_gate(types.SimpleNamespace(act_fn=F.silu, limit=limit), x)
    assert torch.equal(OPS["silu_and_mul_with_clamp"].native(x, limit), expected)


# ---- by name ----


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_get_act_fn_by_the_names_of_transformers(name):
    activations = pytest.importorskip(
        "transformers.activations", reason="transformers is not installed"
    )
    theirs = {**activations.ACT2CLS, "gelu_tanh": activations.GELUTanh}
    x = grid(torch.float32, low=-3.0, high=3.0)
    oracle = theirs[name]
    oracle = oracle[0](**oracle[1]) if isinstance(oracle, tuple) else oracle()
    with torch.no_grad():
        got, expected = get_act_fn(name)(x), oracle.float()(x)
    # xIELU starts from bf16 parameters there
    tolerance = 1e-2 if name == "xielu" else 4e-6
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance / 4)
    assert type(get_act_fn(name.upper())) is type(get_act_fn(name))


def test_names_of_transformers_that_are_left_out():
    """Those that need arguments or that no language model of today uses."""
    activations = pytest.importorskip(
        "transformers.activations", reason="transformers is not installed"
    )
    left_out = set(activations.ACT2CLS) - set(ACTIVATIONS)
    assert left_out <= {"gelu_10", "laplace", "prelu", "sqrtsoftplus"}


@pytest.mark.parametrize("name", sorted(set(GATED_ACTIVATIONS) - {"swigluoai"}))
def test_get_act_and_mul_fn_is_the_activation_times_the_rest(name):
    x = normal(torch.float32)
    gate, up = x.chunk(2, -1)
    expected = get_act_fn(name)(gate) * up
    torch.testing.assert_close(get_act_and_mul_fn(name)(x), expected, rtol=4e-6, atol=1e-6)


def test_get_act_and_mul_fn_swigluoai():
    assert isinstance(get_act_and_mul_fn("swigluoai"), L.SwigluOAIAndMul)


@pytest.mark.parametrize(
    ("function", "name", "error", "message"),
    [
        (get_act_fn, "gelu_pytorch_tan", ValueError, r"did you mean 'gelu_pytorch_tanh'\? Known"),
        (get_act_fn, "nothing_alike", ValueError, r"'nothing_alike'\. Known activations: gelu, "),
        (get_act_and_mul_fn, "siluu", ValueError, r"did you mean 'silu'\? Known"),
        (get_act_and_mul_fn, "tanh", ValueError, "Known activations: gelu, "),
        (get_act_fn, None, TypeError, "name must be a str, got NoneType"),
    ],
)
def test_unknown_names(function, name, error, message):
    with pytest.raises(error, match=message):
        function(name)


def test_every_activation_layer_is_covered_here():
    """A layer that is added gets an oracle."""
    from vllm_ops.shared.layers import activation

    source = inspect.getsource(inspect.getmodule(test_every_activation_layer_is_covered_here))
    for name, value in vars(activation).items():
        if inspect.isclass(value) and issubclass(value, L.activation.CustomOp) and value.name:
            assert f'"{value.name}"' in source, name
