# SPDX-License-Identifier: Apache-2.0
"""Inputs that broke the rotary embeddings of other libraries, one test for each report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm_ops.shared import RotaryEmbedding, functional, get_rope
from vllm_ops.shared.ops import OPS

HALF = [torch.bfloat16, torch.float16]


@pytest.fixture(params=["forward_native", "forward_kernel"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def on(layer: Any, path: str) -> Callable[..., Any]:
    """The layer on one of its paths, whatever it chose."""
    return getattr(layer, path)  # type: ignore[no-any-return]


def exact(
    positions: Tensor, x: Tensor, rotary_dim: int, base: float = 10000.0, neox: bool = True
) -> Tensor:
    """The rotation of ``x [tokens, heads, head_size]`` in fp64, from fp32 frequencies: what a
    model was trained with, but for the rounding of the angle."""
    inverse = 1.0 / base ** (torch.arange(0, rotary_dim, 2).float() / rotary_dim)
    angles = (positions.float()[:, None] * inverse).double()[:, None]
    cos, sin = angles.cos(), angles.sin()
    wide = x.double()
    half = rotary_dim // 2
    if neox:
        first, second = wide[..., :half], wide[..., half:rotary_dim]
    else:
        first, second = wide[..., :rotary_dim:2], wide[..., 1:rotary_dim:2]
    turned = (first * cos - second * sin, second * cos + first * sin)
    both = torch.cat(turned, -1) if neox else torch.stack(turned, -1).flatten(-2)
    return torch.cat((both, wide[..., rotary_dim:]), -1)


def heads(tokens: int, count: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(tokens + count)
    return torch.randn(tokens, count, size, generator=generator).to(dtype)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("neox", [True, False])
def test_field_rotary_without_key(path: str, neox: bool) -> None:
    # Layers that share the keys of another layer turn the query only.
    rope = get_rope(64, max_position=128, is_neox_style=neox)
    positions, query, key = torch.arange(5), heads(5, 4, 64), heads(5, 2, 64)
    alone, nothing = on(rope, path)(positions, query, None)
    assert nothing is None
    torch.testing.assert_close(alone, on(rope, path)(positions, query, key)[0], rtol=0, atol=0)
    assert on(rope, path)(positions, query)[1] is None


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize(
    ("head_size", "rotary_dim"),
    [(2, 2), (16, 16), (46, 10), (64, 64), (80, 32), (96, 96), (112, 112), (192, 64), (256, 256)],
)
def test_field_rotary_any_head_size_and_rotary_dim(
    path: str, head_size: int, rotary_dim: int, neox: bool
) -> None:
    rope = get_rope(head_size, rotary_dim, 4096, is_neox_style=neox)
    positions, query = torch.tensor([0, 1, 17, 4095]), heads(4, 3, head_size)
    out, _ = on(rope, path)(positions, query)
    close(out, exact(positions, query, rotary_dim, neox=neox))


def test_field_rotary_head_256_rotary_64_far_positions(path: str) -> None:
    # A table as wide as the head is right at position 0 and wrong far from it.
    rope = get_rope(256, 64, 4096)
    positions = torch.arange(700, 2356, 5)
    query = heads(len(positions), 2, 256)
    out, _ = on(rope, path)(positions, query)
    close(out, exact(positions, query, 64))
    assert torch.equal(out[..., 64:], query[..., 64:])


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_field_rotary_integer_positions(path: str, index: torch.dtype) -> None:
    rope = get_rope(64, max_position=4096)
    positions, query = torch.tensor([0, 5, 4095]), heads(3, 2, 64)
    out, _ = on(rope, path)(positions.to(index), query)
    torch.testing.assert_close(out, on(rope, path)(positions, query)[0], rtol=0, atol=0)
    for wrong in (torch.int16, torch.uint8, torch.float32):
        with pytest.raises(TypeError, match="positions must be int32 or int64"):
            on(rope, path)(positions.to(wrong), query)


def test_field_rotary_fp16_and_bf16_models_in_one_process(path: str) -> None:
    positions, query = torch.arange(4000, 4008), heads(8, 2, 64)
    expected = exact(positions, query, 64)
    models = {
        dtype: torch.nn.ModuleList([get_rope(64, max_position=4096, dtype=dtype)]) for dtype in HALF
    }
    assert models[torch.float16][0] is not models[torch.bfloat16][0]
    for dtype, model in models.items():
        model.to(dtype)
    for dtype, model in models.items():
        out, _ = on(model[0], path)(positions, query.to(dtype))
        assert out.dtype == dtype
        rounding = torch.finfo(dtype).eps
        torch.testing.assert_close(out.double(), expected, rtol=2 * rounding, atol=2 * rounding)


@pytest.mark.parametrize(
    ("parameters", "length"),
    [
        ({"type": "linear", "factor": 4.0}, 16384),
        ({"type": "dynamic", "factor": 4.0}, 16384),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, 16384),
        (
            {
                "type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 4096,
            },
            32768,
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else str(value),
)
def test_field_rotary_position_at_the_original_length(
    path: str, parameters: dict[str, Any], length: int
) -> None:
    rope = get_rope(64, max_position=4096, rope_parameters=parameters)
    query = heads(4, 2, 64)
    out, _ = on(rope, path)(torch.tensor([4095, 4096, 4097, length - 1]), query)
    assert out.isfinite().all()
    norms = query.norm(dim=-1) * rope.attention_factor
    torch.testing.assert_close(out.norm(dim=-1), norms)
    with pytest.raises(ValueError, match=f"below {length}.*got {length}; .*={length + 1}"):
        on(rope, path)(torch.tensor([0, 0, 0, length]), query)


@pytest.mark.parametrize("position", [4096, 59001, 2**31 + 5, -1, -(2**40)])
def test_field_rotary_position_outside_the_table(path: str, position: int) -> None:
    rope = get_rope(64, max_position=4096)
    positions, query = torch.tensor([0, position]), heads(2, 2, 64)
    allowed = "must not be negative" if position < 0 else "must be below 4096"
    with pytest.raises(ValueError, match=f"rotary_embedding: positions {allowed}.*got {position}"):
        on(rope, path)(positions, query)
    if position > 0:
        with pytest.raises(ValueError, match=f"ask get_rope for max_length={position + 1}"):
            on(rope, path)(positions, query)
    with pytest.raises(RuntimeError, match="rotary_embedding"):
        OPS["rotary_embedding"].overload(positions, query, None, 64, rope.cos_sin_cache)


def test_field_rotary_length_that_the_error_names_is_enough(path: str) -> None:
    rope = get_rope(64, max_position=4096, max_length=59002)
    positions, query = torch.tensor([59001]), heads(1, 2, 64)
    close(on(rope, path)(positions, query)[0], exact(positions, query, 64))


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_field_rotary_position_1857_dim_32(path: str, dtype: torch.dtype) -> None:
    # With angles in the dtype of the model the cosine is off by more than a half.
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        rope = get_rope(32, max_position=2048, dtype=dtype)
    finally:
        torch.set_default_dtype(default)
    rope.to(dtype)
    row = rope.cos_sin_cache[1857]
    angles = 1857 * 10000.0 ** -(torch.arange(0, 32, 2, dtype=torch.float64) / 32)
    assert row.dtype == torch.float32
    torch.testing.assert_close(row[:16].double(), angles.cos(), rtol=0, atol=1e-4)
    rounded = (torch.tensor(1857.0).bfloat16() * (angles / 1857).bfloat16()).float()
    assert (rounded.cos().double() - angles.cos()).abs().max() > 0.5
    positions, query = torch.tensor([1857]), heads(1, 2, 32, dtype)
    out, _ = on(rope, path)(positions, query)
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(
        out.double(), exact(positions, query, 32), rtol=2 * rounding, atol=2 * rounding
    )


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_field_rotary_position_15962(path: str, dtype: torch.dtype) -> None:
    rope = get_rope(128, max_position=16384, base=1e6).to(dtype)
    positions, query = torch.tensor([15962]), heads(1, 2, 128, dtype)
    out, _ = on(rope, path)(positions, query)
    rounding = max(torch.finfo(dtype).eps, 1e-6)
    torch.testing.assert_close(
        out.double(), exact(positions, query, 128, 1e6), rtol=2 * rounding, atol=2 * rounding
    )


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("neox", [True, False])
def test_field_rotary_half_precision_query_with_fp32_table(
    path: str, dtype: torch.dtype, neox: bool
) -> None:
    rope = get_rope(64, max_position=4096, is_neox_style=neox)
    positions = torch.arange(3000, 3016)
    query, key = heads(16, 4, 64, dtype), heads(16, 2, 64, dtype)
    for out, given in zip(on(rope, path)(positions, query, key), (query, key), strict=True):
        assert out.dtype == dtype
        # One rounding, of the fp32 result: no further from the exact value than that.
        expected = exact(positions, given, 64, neox=neox)
        spacing = torch.finfo(dtype).eps * expected.abs()
        assert ((out.double() - expected).abs() <= 0.51 * spacing + 1e-6).all()


def test_field_rotary_dynamic_with_short_sequences(path: str) -> None:
    # Documented: the base is that of the length the table is for. A table for at most max_position
    # positions turns short sequences as if there were no scaling; a longer one has one base for
    # all positions, so that cached keys and later queries agree.
    parameters = {"type": "dynamic", "factor": 4.0}
    plain = get_rope(64, max_position=2048)
    short = get_rope(64, max_position=2048, rope_parameters=parameters, max_length=2048)
    long = get_rope(64, max_position=2048, rope_parameters=parameters)
    positions, query = torch.arange(0, 2048, 100), heads(21, 2, 64)
    expected = on(plain, path)(positions, query)[0]
    torch.testing.assert_close(on(short, path)(positions, query)[0], expected, rtol=0, atol=0)
    base = 10000.0 * (4.0 * 8192 / 2048 - 3.0) ** (64 / 62)
    close(on(long, path)(positions, query)[0], exact(positions, query, 64, base))


@pytest.mark.parametrize(
    "parameters", [None, {}, {"rope_type": "default"}, {"type": "dynamic", "factor": 2.0}]
)
def test_field_rotary_scaling_absent_or_dynamic_has_scale_one(
    path: str, parameters: dict[str, Any] | None
) -> None:
    rope = get_rope(64, max_position=2048, rope_parameters=parameters, max_length=2048)
    assert rope.attention_factor == 1.0
    # And the positions run along the tokens, not along the heads or the batch.
    positions = torch.tensor([[0, 1, 2], [5, 6, 7]])
    query = heads(6, 4, 64).view(2, 3, 4, 64)
    out, _ = on(rope, path)(positions, query)
    close(out.view(6, 4, 64), exact(positions.flatten(), query.view(6, 4, 64), 64))
    torch.testing.assert_close(out[0, 0], query[0, 0], rtol=0, atol=0)


def test_field_compile_rotary_permuted_output(path: str) -> None:
    # (2, 3, 4, 8), seen as [batch, tokens, heads, head_size] of a [batch, heads, tokens, ...]
    # tensor: the fake has to give the strides of the real output.
    rope = RotaryEmbedding(8, 8, 64)
    query = torch.randn(2, 4, 3, 8).transpose(1, 2)
    positions = torch.arange(3).expand(2, 3).contiguous()
    expected, _ = on(rope, path)(positions, query)
    assert expected.shape == (2, 3, 4, 8)
    assert expected.is_contiguous()
    torch._dynamo.reset()

    @torch.compile(fullgraph=True)
    def run(positions: Tensor, query: Tensor) -> Tensor:
        out: Tensor = on(rope, path)(positions, query)[0]
        return out.view(6, 32)

    torch.testing.assert_close(run(positions, query), expected.view(6, 32), rtol=1e-6, atol=1e-6)
    args = (positions, query, None, 8, rope.cos_sin_cache, True)
    torch.library.opcheck(OPS["rotary_embedding"].overload, args)
    applied = (query, *rope.cos_sin_cache[positions].chunk(2, -1))
    assert functional.apply_rotary_emb(*applied).is_contiguous()
    torch.library.opcheck(OPS["apply_rotary_emb"].overload, applied)
