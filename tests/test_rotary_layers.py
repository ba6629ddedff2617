# SPDX-License-Identifier: Apache-2.0
"""The rotary layers against the attention code of ``transformers``, on both of their paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm_ops.shared import (
    ApplyRotaryEmb,
    MRotaryEmbedding,
    QKNormRope,
    RotaryEmbedding,
    backends,
    functional,
    get_rope,
)
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.testing import ELEMENTWISE, assert_within

PATHS = ["forward_native", "forward_kernel"]
POSITIONS = [0, 1, 700, 2355, 15962, 16383]


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def on(layer: Any, path: str) -> Callable[..., Any]:
    """The layer on one of its paths, whatever it chose."""
    return getattr(layer, path)  # type: ignore[no-any-return]


def heads(count: int, size: int, tokens: int = len(POSITIONS), seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, count, size, generator=generator)


def batched(x: Tensor) -> Tensor:
    """``[tokens, heads, size]`` as ``transformers`` has it: ``[1, heads, tokens, size]``."""
    return x.transpose(0, 1)[None]


def close(actual: Tensor, expected: Tensor) -> None:
    """Within the contract of the table; ``transformers`` computes the rest in fp32 as well."""
    torch.testing.assert_close(batched(actual), expected, rtol=1e-6, atol=4e-6)


def config(**options: Any) -> dict[str, Any]:
    return {
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 16384,
        **options,
    }


def test_neox_like_llama(path: str) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as llama

    layer = get_rope(64, max_position=16384, base=500000.0)
    query, key = heads(4, 64), heads(2, 64, seed=1)
    rope = llama.LlamaRotaryEmbedding(LlamaConfig(**config(rope_theta=500000.0)))
    cos, sin = rope(query, torch.tensor([POSITIONS]))
    expected = llama.apply_rotary_pos_emb(batched(query), batched(key), cos, sin)
    actual = on(layer, path)(torch.tensor(POSITIONS), query, key)
    for got, want in zip(actual, expected, strict=True):
        close(got, want)


def test_gptj_partial_like_glm(path: str) -> None:
    from transformers import GlmConfig
    from transformers.models.glm import modeling_glm as glm

    layer = get_rope(64, max_position=16384, partial_rotary_factor=0.5, is_neox_style=False)
    query, key = heads(4, 64), heads(2, 64, seed=1)
    rope = glm.GlmRotaryEmbedding(GlmConfig(**config(head_dim=64, partial_rotary_factor=0.5)))
    cos, sin = rope(query, torch.tensor([POSITIONS]))
    expected = glm.apply_rotary_pos_emb(batched(query), batched(key), cos, sin)
    actual = on(layer, path)(torch.tensor(POSITIONS), query, key)
    for got, want in zip(actual, expected, strict=True):
        close(got, want)


def test_gptj_yarn_like_deepseek_v2(path: str) -> None:
    from transformers import DeepseekV2Config
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as deepseek

    scaling = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 0.707,
        "beta_fast": 32,
        "beta_slow": 1,
    }
    layer = get_rope(64, max_position=16384, rope_parameters=scaling, is_neox_style=False)
    query, key = heads(4, 64), heads(1, 64, seed=1)
    rope = deepseek.DeepseekV2RotaryEmbedding(
        DeepseekV2Config(
            **config(qk_rope_head_dim=64, rope_parameters={**scaling, "rope_theta": 10000.0})
        )
    )
    angles = rope(query, torch.tensor([POSITIONS]))
    expected = deepseek.apply_rotary_emb(batched(query), batched(key), angles)
    actual = on(layer, path)(torch.tensor(POSITIONS), query, key)
    for got, want in zip(actual, expected, strict=True):
        close(got, want)


AXES = [[0, 5, 7, 700, 15962, 3], [0, 1, 9, 2355, 40, 16383], [0, 1, 700, 11, 15962, 8]]


@pytest.mark.parametrize(
    ("name", "section", "interleaved"),
    [("qwen2_vl", [8, 12, 12], False), ("qwen3_vl", [12, 10, 10], True)],
)
def test_multimodal_like_qwen(path: str, name: str, section: list[int], interleaved: bool) -> None:
    parameters = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": section,
        "mrope_interleaved": interleaved,
    }
    if name == "qwen2_vl":
        from transformers.models.qwen2_vl import configuration_qwen2_vl as configuration
        from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen

        del parameters["mrope_interleaved"]
        rope: Any = qwen.Qwen2VLRotaryEmbedding(
            configuration.Qwen2VLTextConfig(**config(rope_parameters=dict(parameters)))
        )
    else:
        from transformers.models.qwen3_vl import configuration_qwen3_vl as configuration3
        from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen

        rope = qwen.Qwen3VLTextRotaryEmbedding(
            configuration3.Qwen3VLTextConfig(
                **config(head_dim=64, rope_parameters=dict(parameters))
            )
        )
    layer = get_rope(64, max_position=16384, rope_parameters=parameters)
    assert isinstance(layer, MRotaryEmbedding)
    query, key = heads(4, 64), heads(2, 64, seed=1)
    positions = torch.tensor(AXES)
    cos, sin = rope(query, positions[:, None])
    expected = qwen.apply_rotary_pos_emb(batched(query), batched(key), cos, sin)
    actual = on(layer, path)(positions, query, key)
    for got, want in zip(actual, expected, strict=True):
        close(got, want)


def test_multimodal_with_one_row_of_positions_is_text(path: str) -> None:
    layer = get_rope(64, max_position=16384, rope_parameters={"mrope_section": [8, 12, 12]})
    plain = get_rope(64, max_position=16384)
    query, key = heads(4, 64), heads(2, 64, seed=1)
    positions = torch.tensor(POSITIONS)
    expected = on(plain, path)(positions, query, key)
    for given in (positions, positions.expand(3, -1)):
        for got, want in zip(on(layer, path)(given, query, key), expected, strict=True):
            assert_within(got, want, ELEMENTWISE)


def test_dual_chunk_turns_by_positions_within_chunks(path: str) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as llama

    chunk_size, local_size = 64, 16
    length = chunk_size - local_size
    layer = get_rope(
        64,
        max_position=512,
        dual_chunk_attention_config={"chunk_size": chunk_size, "local_size": local_size},
    )
    places = [0, 1, 15, 16, 47, 48, 63, 64, 95, 96, 300, 511]
    query, key = heads(4, 64, len(places)), heads(2, 64, len(places), seed=1)
    rope = llama.LlamaRotaryEmbedding(LlamaConfig(**config(max_position_embeddings=512)))

    def turned(x: Tensor, at: list[int]) -> Tensor:
        cos, sin = rope(x, torch.tensor([at]))
        result: Tensor = llama.apply_rotary_pos_emb(batched(x), batched(x), cos, sin)[0]
        return result

    queries, turned_key = on(layer, path)(torch.tensor(places), query, key)
    within = [p % length for p in places]
    expected = [
        within,
        [min(p + length, chunk_size) for p in within],
        [min(2 * length - 1, chunk_size)] * len(places),
        [p + length for p in within],
        [p + chunk_size for p in within],
    ]
    assert queries.shape == (len(places), 4, 5 * 64)
    for part, at in zip(queries.chunk(5, -1), expected, strict=True):
        close(part, turned(query, at))
    close(turned_key, turned(key, within))

    flat, no_key = on(layer, path)(torch.tensor(places), query.flatten(1), None)
    assert no_key is None
    for part, whole in zip(flat.chunk(5, -1), queries.chunk(5, -1), strict=True):
        torch.testing.assert_close(part, whole.flatten(1), rtol=0, atol=0)


def test_dual_chunk_rejects_positions_outside_the_sequence(path: str) -> None:
    layer = get_rope(
        64, max_position=512, dual_chunk_attention_config={"chunk_size": 64, "local_size": 16}
    )
    query = heads(4, 64, 1)
    with pytest.raises(ValueError, match=r"dual_chunk.*below 512, .*got 512; .*max_length=513"):
        on(layer, path)(torch.tensor([512]), query)
    with pytest.raises(ValueError, match=r"must not be negative, got -1"):
        on(layer, path)(torch.tensor([-1]), query)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_neox_style", [True, False])
def test_given_angles_equal_the_table(path: str, dtype: torch.dtype, is_neox_style: bool) -> None:
    rope = RotaryEmbedding(64, 32, 16384, is_neox_style=is_neox_style)
    layer = ApplyRotaryEmb(is_neox_style)
    positions = torch.tensor(POSITIONS)
    x = heads(4, 64).to(dtype)
    cos, sin = rope.cos_sin_cache[positions].chunk(2, -1)
    expected, _ = rope(positions, x)
    assert_within(on(layer, path)(x, cos, sin), expected, ELEMENTWISE)
    batch = torch.stack([x, x])
    assert_within(on(layer, path)(batch, cos, sin), torch.stack([expected, expected]), ELEMENTWISE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options", [{}, {"weight_offset": 1.0, "round_before_weight": False}], ids=["llama", "gemma"]
)
@pytest.mark.parametrize("flat", [True, False])
def test_norm_and_rotation_equal_the_two_in_sequence(
    path: str, dtype: torch.dtype, options: dict[str, Any], flat: bool
) -> None:
    rope = get_rope(64, max_position=16384)
    layer = QKNormRope(rope, eps=1e-5, **options)
    positions = torch.tensor(POSITIONS)
    query, key = heads(4, 64).to(dtype), heads(2, 64, seed=1).to(dtype)
    q_weight, k_weight = (1 + 0.1 * torch.randn(64) for _ in "qk")

    # Bit for bit among kernels and among references; a backend may lack the fused kernel.
    fused = path == "forward_kernel" and "qk_norm_rope" in backends.choose().ops
    rms_norm = functional.rms_norm if fused else OPS["rms_norm"].native
    unfused = rope.forward_kernel if fused else rope.forward_native
    rest = (None, options.get("weight_offset", 0.0), options.get("round_before_weight", True))

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, 1e-5, *rest)  # type: ignore[no-any-return]

    expected = unfused(positions, norm(query, q_weight), norm(key, k_weight))
    if flat:
        query, key = query.flatten(1), key.flatten(1)
    actual = on(layer, path)(positions, query, key, q_weight, k_weight)
    for got, want, given in zip(actual, expected, (query, key), strict=True):
        assert got.shape == given.shape
        torch.testing.assert_close(got.view(want.shape), want, rtol=0, atol=0)


def test_norm_and_rotation_like_qwen3(path: str) -> None:
    from transformers import Qwen3Config
    from transformers.models.qwen3 import modeling_qwen3 as qwen3

    layer = QKNormRope(get_rope(64, max_position=16384, base=1e6), eps=1e-6)
    query, key = heads(4, 64), heads(2, 64, seed=1)
    norm = qwen3.Qwen3RMSNorm(64, eps=1e-6)
    torch.nn.init.normal_(norm.weight, 1.0, 0.1)
    rope = qwen3.Qwen3RotaryEmbedding(Qwen3Config(**config(head_dim=64, rope_theta=1e6)))
    cos, sin = rope(query, torch.tensor([POSITIONS]))
    expected = qwen3.apply_rotary_pos_emb(batched(norm(query)), batched(norm(key)), cos, sin)
    actual = on(layer, path)(torch.tensor(POSITIONS), query, key, norm.weight, norm.weight)
    for got, want in zip(actual, expected, strict=True):
        close(got, want)


def test_norm_and_rotation_needs_a_plain_layer() -> None:
    rope = get_rope(64, max_position=64, rope_parameters={"mrope_section": [8, 12, 12]})
    with pytest.raises(TypeError, match="must be a RotaryEmbedding, got MRotaryEmbedding"):
        QKNormRope(rope)


LAYOUTS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("contiguous", lambda x: x),
    ("sliced", lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]]),
    ("transposed", lambda x: x.transpose(0, 1).contiguous().transpose(0, 1)),
]


@pytest.mark.parametrize("layout", [make for _, make in LAYOUTS], ids=[tag for tag, _ in LAYOUTS])
@pytest.mark.parametrize("is_neox_style", [True, False])
@pytest.mark.parametrize("rotary_dim", [64, 20])
def test_in_place_equals_out_of_place(
    layout: Callable[[Tensor], Tensor], is_neox_style: bool, rotary_dim: int
) -> None:
    rope = RotaryEmbedding(64, rotary_dim, 16384, is_neox_style=is_neox_style)
    positions = torch.tensor(POSITIONS)
    query, key = layout(heads(4, 64).bfloat16()), layout(heads(2, 64, seed=1).bfloat16())
    rest = (64, rope.cos_sin_cache, is_neox_style)
    expected = functional.rotary_embedding(positions, query, key, *rest)
    assert functional.rotary_embedding_(positions, query, key, *rest) is None
    for got, want in zip((query, key), expected, strict=True):
        assert_within(got.contiguous(), want, ELEMENTWISE)
    before = query.clone()
    functional.rotary_embedding_(positions, query, None, *rest)
    assert not torch.equal(query, before)


def test_in_place_on_the_parts_of_a_fused_projection() -> None:
    rope = RotaryEmbedding(64, 64, 16384)
    positions = torch.tensor(POSITIONS)
    fused = torch.randn(len(POSITIONS), (4 + 2 + 2) * 64)
    query, key, value = fused.split([256, 128, 128], dim=-1)
    value_before = value.clone()
    expected = rope(positions, query, key)
    functional.rotary_embedding_(positions, query, key, 64, rope.cos_sin_cache)
    for got, want in zip((query, key), expected, strict=True):
        assert_within(got, want, ELEMENTWISE)
    assert torch.equal(value, value_before)


def test_in_place_with_a_wrong_position_writes_nothing() -> None:
    rope = RotaryEmbedding(64, 64, 8)
    query = torch.randn(2, 64)
    before = query.clone()
    with pytest.raises(ValueError, match="got 8"):
        functional.rotary_embedding_(torch.tensor([0, 8]), query, None, 64, rope.cos_sin_cache)
    assert torch.equal(query, before)


@pytest.mark.parametrize("op", ["rotary_embedding_"])
def test_opcheck_in_place(op: str) -> None:
    rope = RotaryEmbedding(64, 32, 16)
    for key in (torch.randn(3, 64), None):
        args = (torch.arange(3), torch.randn(3, 128), key, 64, rope.cos_sin_cache, False)
        torch.library.opcheck(OPS[op].overload, args)
