# SPDX-License-Identifier: Apache-2.0
"""The norms against torch.nn.functional and transformers, which nobody here wrote.

A reference is equal bit for bit where it rounds where the oracle does: Llama, Qwen3 and Gemma
RMSNorm in every dtype, F.rms_norm (one rounding), and the gated norms in fp32. It differs on
purpose where transformers rounds a gated norm two or three times in half precision (before the
weight, before the gate, at the end): here it rounds once, and is held to be nearer to fp64.
F.layer_norm sums half precision in another order than fp32, so the reference, which sums as in
fp32, is within the contract there.
"""

import pytest
import torch
import torch.nn.functional as F
from vllm_ops.shared import layers as L
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import NORM, assert_within
from vllm_ops.shared.testing.accuracy import errors
from vllm_ops.shared.testing.cases.layernorm import unusual

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
KINDS = ("normal", "large", "tiny", "outliers", "zero_row")
SIZE = 768


def oracle(module, name):
    modeling = pytest.importorskip(
        f"transformers.models.{module}.modeling_{module}", reason="transformers is not installed"
    )
    return getattr(modeling, name)


def values(kind, dtype, shape=(37, SIZE), seed=0):
    return unusual(kind, shape, dtype, seed=seed)


def randomise(module, dtype, seed=4):
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        drawn = torch.randn(parameter.shape, generator=generator) * 0.1
        parameter.data = (parameter.data.float() + drawn).to(dtype)
    return module.requires_grad_(False)


def same(ours, theirs, module, layer, x, *rest):
    """The reference bit for bit, the layer as it runs here within the contract."""
    layer.load_state_dict(module.state_dict())
    layer.requires_grad_(False)
    assert list(layer.state_dict()) == list(module.state_dict())
    assert torch.equal(ours, theirs)
    assert_within(layer(x, *rest), theirs, NORM, type(layer).__name__)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("module", "name"),
    [("llama", "LlamaRMSNorm"), ("qwen3", "Qwen3RMSNorm"), ("mistral", "MistralRMSNorm")],
)
def test_rms_norm_of_llama_order_bit_for_bit(module, name, dtype, kind):
    norm = randomise(oracle(module, name)(SIZE, 1e-6), dtype)
    x = values(kind, dtype)
    reference = OPS["rms_norm"].native(x, norm.weight, 1e-6)
    same(reference, norm(x), norm, L.RMSNorm(SIZE, 1e-6, dtype=dtype), x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("module", "name"), [("gemma", "GemmaRMSNorm"), ("gemma3", "Gemma3RMSNorm")]
)
def test_rms_norm_of_gemma_order_bit_for_bit(module, name, dtype, kind):
    norm = randomise(oracle(module, name)(SIZE, 1e-6), dtype)
    x = values(kind, dtype)
    reference = OPS["rms_norm"].native(x, norm.weight, 1e-6, None, 1.0, False)
    same(reference, norm(x), norm, L.GemmaRMSNorm(SIZE, 1e-6, dtype=dtype), x)


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_llama_with_an_fp32_weight_keeps_the_dtype_of_x(weight_dtype):
    """transformers returns fp32 there, as the last product promotes; the contract rounds it."""
    norm = randomise(oracle("llama", "LlamaRMSNorm")(SIZE, 1e-6), weight_dtype)
    x = values("normal", torch.bfloat16)
    reference = OPS["rms_norm"].native(x, norm.weight, 1e-6)
    assert reference.dtype == torch.bfloat16
    assert torch.equal(reference, norm(x).to(torch.bfloat16))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_q_and_k_norm_of_qwen3_on_views_of_a_fused_projection(dtype):
    """Qwen3 norms q and k over head_size after a split of the projection."""
    tokens, heads, kv_heads, head_size = 11, 8, 2, 64
    norms = [randomise(oracle("qwen3", "Qwen3RMSNorm")(head_size), dtype, seed) for seed in (1, 2)]
    qkv = values("normal", dtype, (tokens, (heads + 2 * kv_heads) * head_size))
    split = [heads * head_size, kv_heads * head_size, kv_heads * head_size]
    q, k, _ = qkv.split(split, dim=-1)
    for part, norm in zip((q, k), norms, strict=True):
        view = part.view(tokens, -1, head_size)
        assert not view.is_contiguous()
        reference = OPS["rms_norm"].native(view, norm.weight, norm.variance_epsilon)
        layer = L.RMSNorm(head_size, norm.variance_epsilon, dtype=dtype)
        same(reference, norm(view), norm, layer, view)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fused_add_is_the_sum_then_the_norm(dtype, kind):
    norm = randomise(oracle("llama", "LlamaRMSNorm")(SIZE, 1e-6), dtype)
    x, residual = values(kind, dtype), values(kind, dtype, seed=1)
    total = x + residual
    normed, summed = OPS["fused_add_rms_norm"].native(x, residual, norm.weight, 1e-6)
    assert torch.equal(summed, total)
    assert torch.equal(normed, norm(total))
    layer = L.RMSNorm(SIZE, 1e-6, dtype=dtype).requires_grad_(False)
    layer.load_state_dict(norm.state_dict())
    normed, summed = layer(x, residual)
    assert torch.equal(summed, total)
    assert_within(normed, norm(total), NORM)


@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
def test_rms_norm_against_torch_bit_for_bit(dtype):
    """F.rms_norm has one rounding, so it is the order that Gemma uses, without the offset."""
    x, weight = values("normal", dtype), values("normal", dtype, (SIZE,), seed=2)
    expected = F.rms_norm(x, (SIZE,), weight, 1e-6)
    assert torch.equal(OPS["rms_norm"].native(x, weight, 1e-6, None, 0.0, False), expected)
    assert torch.equal(OPS["rms_norm"].native(x, None, 1e-6), F.rms_norm(x, (SIZE,), None, 1e-6))


def test_variance_size_is_the_mean_over_the_leading_part():
    x, weight = values("normal", torch.float64), values("normal", torch.float64, (SIZE,), seed=2)
    leading = F.rms_norm(x[:, :100], (100,), None, 1e-6)
    scale = leading[:, :1] / x[:, :1]
    expected = x * scale * weight
    got = OPS["rms_norm"].native(x, weight, 1e-6, 100)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, *DTYPES], ids=str)
@pytest.mark.parametrize(("affine", "bias"), [(True, True), (True, False), (False, False)])
def test_layer_norm_against_torch(affine, bias, dtype, kind):
    norm = torch.nn.LayerNorm(SIZE, 1e-5, affine, bias, dtype=dtype)
    randomise(norm, dtype)
    x = values(kind, dtype)
    expected = norm(x)
    reference = OPS["layer_norm"].native(x, norm.weight, norm.bias, 1e-5)
    if dtype in (torch.float32, torch.float64):
        assert torch.equal(reference, expected)
    else:
        assert_within(reference, expected, NORM)
    layer = L.LayerNorm(SIZE, 1e-5, affine, bias, dtype=dtype).requires_grad_(False)
    layer.load_state_dict(norm.state_dict())
    assert_within(layer(x), reference, NORM)


GATED = {
    "mamba2": ("mamba2", "MambaRMSNormGated", {"group_size": 256}, False),
    "nemotron_h": ("nemotron_h", "NemotronHRMSNormGated", {"group_size": SIZE}, False),
    "zamba2": ("zamba2", "Zamba2RMSNormGated", {"group_size": 96}, False),
    "qwen3_next": ("qwen3_next", "Qwen3NextRMSNormGated", {}, True),
}
"""Model: module, class, its arguments, whether the norm comes before the gate."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("model", GATED)
def test_rms_norm_gated_against_transformers(model, dtype, kind):
    module, name, options, before = GATED[model]
    norm = randomise(oracle(module, name)(SIZE, **options), dtype)
    x, gate = values(kind, dtype), values("normal", dtype, seed=1)
    group_size = options.get("group_size")
    arguments = (x, gate, norm.weight, norm.variance_epsilon, group_size, before)
    reference = OPS["rms_norm_gated"].native(*arguments)
    expected = norm(x, gate)
    layer = L.RMSNormGated(SIZE, norm.variance_epsilon, group_size, before, dtype=dtype)
    layer.load_state_dict(norm.state_dict())
    assert_within(layer.requires_grad_(False)(x, gate), reference, NORM)
    if dtype == torch.float32:
        assert torch.equal(reference, expected)
        return
    wide = (a.double() if isinstance(a, torch.Tensor) else a for a in arguments)
    exact = OPS["rms_norm_gated"].native(*wide)
    ours, theirs = errors(reference, exact), errors(expected, exact)
    assert ours.largest < 0.51
    assert ours.mean < theirs.mean
    assert theirs.largest < 3.5  # three roundings of half an ulp, doubled by a product


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rms_norm_gated_that_rounds_once_bit_for_bit(dtype, kind):
    """GLM's gated norm stays in fp32 to the end; it has a sigmoid there, replaced by SiLU here."""
    norm = randomise(oracle("glm5_next", "Glm5NextTextRMSNormGated")(SIZE), dtype)
    norm.activation = "silu"
    x, gate = values(kind, dtype), values("normal", dtype, seed=1)
    reference = OPS["rms_norm_gated"].native(x, gate, norm.weight, norm.variance_epsilon)
    assert torch.equal(reference, norm(x, gate))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rms_norm_gated_without_a_gate_is_a_group_norm(dtype):
    norm = randomise(oracle("mamba2", "MambaRMSNormGated")(SIZE, 128), torch.float32)
    x = values("normal", dtype)
    reference = OPS["rms_norm_gated"].native(x, None, norm.weight, 1e-6, 128, False)
    grouped = F.rms_norm(x.double().view(37, -1, 128), (128,), None, 1e-6).view(37, SIZE)
    expected = (grouped * norm.weight.double()).to(dtype)
    assert_within(reference, expected, NORM)
