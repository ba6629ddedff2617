# SPDX-License-Identifier: Apache-2.0
"""How activation and norm layers are built, what they hold, and what they refuse."""

import pytest
import torch
from torch import nn
from vllm_ops.shared import layers as L
from vllm_ops.shared.custom_op import CustomOp
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing.inputs import make

PATHS = ("forward_native", "forward_kernel")

REFUSED = [
    (
        lambda: L.GeluAndMul("erf"),
        'gelu_and_mul: approximate must be "none" or "tanh", got \'erf\'',
    ),
    (lambda: L.FatreluAndMul("a"), "fatrelu_and_mul: threshold must be a number, got str"),
    (lambda: L.SiluAndMulWithClamp(0), "silu_and_mul_with_clamp: limit must be above 0, got 0"),
    (lambda: L.SwigluOAIAndMul(limit=-7.0), "swigluoai_and_mul: limit must be above 0, got -7.0"),
    (lambda: L.SwigluOAIAndMul(alpha=None), "swigluoai_and_mul: alpha must be a number, got None"),
    (lambda: L.XIELU(alpha_p_init=0.0), "xielu: alpha_p_init must be above 0.0, got 0.0"),
    (lambda: L.XIELU(alpha_n_init=0.4), "xielu: alpha_n_init must be above 0.5, got 0.4"),
    (lambda: L.ScaledActivation(L.GELU(), 0), "scaled_activation: size must be above 0, got 0"),
    (lambda: L.RMSNorm(0), "rms_norm: hidden_size must be above 0, got 0"),
    (lambda: L.RMSNorm(8, -1e-6), "rms_norm: eps must not be negative, got -1e-06"),
    (lambda: L.RMSNorm(8, variance_size=9), "variance_size must be between 1 and 8, got 9"),
    (lambda: L.GemmaRMSNorm(-1), "gemma_rms_norm: hidden_size must be above 0, got -1"),
    (lambda: L.LayerNorm(8, None), "layer_norm: eps must be a number, got NoneType"),
    (
        lambda: L.RMSNormGated(8, group_size=3),
        "rms_norm_gated: group_size must divide hidden_size, 8, got 3",
    ),
]

WRONG_TYPES = [
    (lambda: L.RMSNorm("8"), "rms_norm: hidden_size must be an int, got str"),
    (lambda: L.RMSNorm((4, 8)), "rms_norm: hidden_size must be an int, got tuple"),
    (lambda: L.RMSNorm(8.0), "rms_norm: hidden_size must be an int, got float"),
    (lambda: L.RMSNorm(True), "rms_norm: hidden_size must be an int, got bool"),
    (lambda: L.RMSNorm(8, "1e-6"), "rms_norm: eps must be a number, got str"),
    (lambda: L.RMSNorm(8, variance_size=True), "rms_norm: variance_size must be an int, got bool"),
    (lambda: L.RMSNorm(8, variance_size=2.5), "rms_norm: variance_size must be an int, got float"),
    (lambda: L.RMSNorm(8, has_weight=None), "rms_norm: has_weight must be True or False, got None"),
    (
        lambda: L.RMSNorm(8, dtype="bfloat16"),
        "rms_norm: dtype must be torch.float32, bfloat16, float16, float64 or None, got 'bfloat16'",
    ),
    (lambda: L.RMSNorm(8, dtype=torch.int8), "rms_norm: dtype must be torch.float32, bfloat16,"),
    (lambda: L.RMSNorm(8, enabled=1), "rms_norm: enabled must be True, False or None, got 1"),
    (lambda: L.GemmaRMSNorm(None), "gemma_rms_norm: hidden_size must be an int, got NoneType"),
    (lambda: L.LayerNorm([8]), "layer_norm: hidden_size must be an int, got list"),
    (lambda: L.LayerNorm(8, bias=0), "layer_norm: bias must be True or False, got 0"),
    (
        lambda: L.LayerNorm(8, elementwise_affine="no"),
        "layer_norm: elementwise_affine must be True or False, got 'no'",
    ),
    (
        lambda: L.RMSNormGated(8, group_size=4.0),
        "rms_norm_gated: group_size must be an int, got float",
    ),
    (
        lambda: L.RMSNormGated(8, norm_before_gate=1),
        "rms_norm_gated: norm_before_gate must be True or False, got 1",
    ),
    (lambda: L.Linear("8", 4), "linear: in_features must be an int, got str"),
    (lambda: L.Linear(8, 4.0), "linear: out_features must be an int, got float"),
    (lambda: L.Linear(8, 4, bias=None), "linear: bias must be True or False, got None"),
    (lambda: L.Linear(8, 4, dtype="half"), "linear: dtype must be torch.float32, bfloat16,"),
    (lambda: L.XIELU(alpha_p_init="a"), "xielu: alpha_p_init must be a number, got str"),
    (lambda: L.XIELU(beta=None), "xielu: beta must be a number, got NoneType"),
    (lambda: L.SwigluOAIAndMul(alpha=True), "swigluoai_and_mul: alpha must be a number, got bool"),
    (
        lambda: L.ScaledActivation(torch.relu, 8),
        "scaled_activation: act must be a torch.nn.Module, got builtin_function_or_method",
    ),
    (lambda: L.ScaledActivation(L.GELU(), 8.0), "scaled_activation: size must be an int, got"),
    (
        lambda: L.RotaryEmbedding(64.0, 64, 128),
        "rotary_embedding: head_size must be an int, got float",
    ),
    (
        lambda: L.RotaryEmbedding(64, 32.0, 128),
        "rotary_embedding: rotary_dim must be an int, got float",
    ),
    (
        lambda: L.RotaryEmbedding(64, 64, 128.5),
        "rotary_embedding: max_position must be an int, got float",
    ),
    (
        lambda: L.RotaryEmbedding(64, 64, 128, max_length="long"),
        "rotary_embedding: max_length must be an int, got str",
    ),
    (
        lambda: L.RotaryEmbedding(64, 64, 128, "1e4"),
        "rotary_embedding: base must be a number, got str",
    ),
    (
        lambda: L.RotaryEmbedding(64, 64, 128, scaling={"factor": 2}),
        "rotary_embedding: scaling must be a RopeScaling or None, got dict",
    ),
    (
        lambda: L.MRotaryEmbedding(64, 64, 128, mrope_section=None),
        "multimodal_rotary_embedding: mrope_section must be three integers >= 0 whose sum is "
        "rotary_dim / 2, 32, got NoneType",
    ),
    (
        lambda: L.MRotaryEmbedding(64, 64, 128, mrope_section=[16.0, 8, 8]),
        "rotary_dim / 2, 32, got [16.0, 8, 8]",
    ),
    (
        lambda: L.MRotaryEmbedding(64, "64", 128, mrope_section=[16, 8, 8]),
        "multimodal_rotary_embedding: rotary_dim must be an int, got str",
    ),
    (
        lambda: L.MRotaryEmbedding(64, 64, 128, mrope_section=[16, 8, 8], mrope_interleaved=1),
        "multimodal_rotary_embedding: mrope_interleaved must be True or False, got 1",
    ),
    (
        lambda: L.DualChunkRotaryEmbedding(64, 64, 128, chunk_size=8.0, local_size=2),
        "dual_chunk_rotary_embedding: chunk_size must be an int, got float",
    ),
    (
        lambda: L.ApplyRotaryEmb("gptj"),
        "apply_rotary_emb: is_neox_style must be True or False, got 'gptj'",
    ),
    (
        lambda: L.get_rope(64, 64, 128, dual_chunk_attention_config=3),
        "get_rope: dual_chunk_attention_config must be a dict or None, got int",
    ),
    (
        lambda: L.QKNormRope(L.RotaryEmbedding(8, 8, 16), None),
        "qk_norm_rope: eps must be a number, got NoneType",
    ),
    (
        lambda: L.QKNormRope(L.RotaryEmbedding(8, 8, 16), weight_offset="1"),
        "qk_norm_rope: weight_offset must be a number, got str",
    ),
]


@pytest.mark.parametrize(
    ("build", "message"), WRONG_TYPES, ids=[message for _, message in WRONG_TYPES]
)
def test_a_wrong_type_is_refused_when_built(build, message):
    with pytest.raises(TypeError) as caught:
        build()
    assert message in str(caught.value)


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused_when_built(build, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        build()
    assert message in str(caught.value)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "layer",
    [
        L.RMSNorm(8),
        L.RMSNorm(8, has_weight=False),
        L.GemmaRMSNorm(8),
        L.LayerNorm(8),
        L.LayerNorm(8, elementwise_affine=False),
        L.RMSNormGated(8),
        L.RMSNormGated(8, has_weight=False),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_another_last_dimension_is_refused(layer, path):
    with pytest.raises(ValueError, match=r"norm\w*: .* must have \d+ elements.*, got \d+"):
        getattr(layer, path)(torch.randn(2, 7))


def test_registered_name_is_the_operator_or_says_which():
    for module in (L.activation, L.layernorm):
        for layer in vars(module).values():
            if isinstance(layer, type) and issubclass(layer, CustomOp) and layer.name:
                assert layer.name in (*OPS, "gemma_rms_norm")
                assert set(layer.ops) <= set(OPS)


PARAMETERS = {
    "RMSNorm": (lambda **k: L.RMSNorm(6, **k), {"weight": 1.0}),
    "RMSNorm without weight": (lambda **k: L.RMSNorm(6, has_weight=False, **k), {}),
    "GemmaRMSNorm": (lambda **k: L.GemmaRMSNorm(6, **k), {"weight": 0.0}),
    "LayerNorm": (lambda **k: L.LayerNorm(6, **k), {"weight": 1.0, "bias": 0.0}),
    "LayerNorm without bias": (lambda **k: L.LayerNorm(6, bias=False, **k), {"weight": 1.0}),
    "LayerNorm without affine": (lambda **k: L.LayerNorm(6, elementwise_affine=False, **k), {}),
    "RMSNormGated": (lambda **k: L.RMSNormGated(6, **k), {"weight": 1.0}),
    "ScaledActivation": (lambda **k: L.ScaledActivation(L.GELU(), 6, **k), {"scales": 1.0}),
}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=str)
def test_parameters(name, dtype):
    build, expected = PARAMETERS[name]
    found = dict(build(dtype=dtype).named_parameters())
    assert {key: value.dtype for key, value in found.items()} == dict.fromkeys(
        expected, dtype or torch.float32
    )
    for key, value in expected.items():
        assert torch.equal(found[key].detach().float(), torch.full((6,), value))
    assert all(value.is_meta for value in build(dtype=dtype, device="meta").parameters())


def test_layers_start_as_what_they_stand_for():
    x = make((5, 6), torch.float32)
    torch.testing.assert_close(L.LayerNorm(6)(x), nn.LayerNorm(6)(x))
    torch.testing.assert_close(L.RMSNorm(6)(x), nn.RMSNorm(6, eps=1e-6)(x))
    torch.testing.assert_close(L.GemmaRMSNorm(6)(x), nn.RMSNorm(6, eps=1e-6)(x))


@pytest.mark.parametrize("path", PATHS)
def test_a_state_dict_brings_the_constants_of_xielu(path):
    source = L.XIELU(alpha_p_init=1.1, alpha_n_init=0.9, beta=0.25, eps=-1e-3)
    layer = nn.Sequential(L.XIELU(dtype=torch.bfloat16))
    layer.load_state_dict({f"0.{name}": value for name, value in source.state_dict().items()})
    x = make((3, 64), torch.float32)
    assert layer[0].extra_repr().startswith("beta=0.25, eps=-0.00099")
    torch.testing.assert_close(
        getattr(layer[0], path)(x), getattr(source, path)(x), rtol=2e-2, atol=1e-2
    )
    on_meta = L.XIELU(device="meta")
    on_meta.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(getattr(on_meta, path)(x), getattr(source, path)(x))


@pytest.mark.parametrize("scales_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_scaled_activation(scales_dtype):
    layer = L.ScaledActivation(L.GELU(), 6, dtype=scales_dtype)
    layer.scales.data = torch.arange(1, 7).to(scales_dtype)
    x = make((2, 3, 6), torch.bfloat16)
    got = layer(x)
    assert got.dtype == x.dtype
    expected = (L.GELU()(x).float() / torch.arange(1, 7)).to(x.dtype)
    assert torch.equal(got, expected)
    gated = L.ScaledActivation(L.SiluAndMul(), 6)
    assert gated(make((2, 12), torch.float32)).shape == (2, 6)
    with pytest.raises(ValueError, match="must have 6 elements in the last dimension, got 7"):
        layer(make((2, 7), torch.bfloat16))


def test_printed():
    assert str(L.RMSNorm(8)).startswith("RMSNorm(8, eps=1e-06, path=")
    assert str(L.GeluAndMul("tanh")).startswith("GeluAndMul(approximate='tanh', path=")
    assert str(L.RMSNormGated(8, group_size=4)).startswith(
        "RMSNormGated(group_size=4, norm before gate, 8, eps=1e-05, path="
    )
