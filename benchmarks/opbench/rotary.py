# SPDX-License-Identifier: Apache-2.0
"""Rows of the rotary family."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from vllm_ops.shared import layers

from .layernorm import llama_rms_norm
from .row import (
    EPS,
    HEAD_SIZE,
    HEADS,
    KEY_HEADS,
    MAX_POSITION,
    Args,
    Contender,
    Row,
    tensor,
    touch,
    weight,
)

_SIZES = (HEAD_SIZE, HEAD_SIZE, MAX_POSITION)

SECTIONS = [16, 24, 24]
"""Pairs turned by time, height and width, as in Qwen2-VL with heads of 128."""

_Pair = tuple[Tensor, Tensor]


@functools.cache
def table() -> Tensor:
    """Cosines, then sines: ``[MAX_POSITION, HEAD_SIZE]`` in fp32, base 10,000."""
    return layers.RotaryEmbedding(*_SIZES).cos_sin_cache


@functools.lru_cache(maxsize=4)
def _table_as(dtype: torch.dtype) -> Tensor:
    return table().to(dtype)


def _turn_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def _turn_pair(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def rotate_neox(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> _Pair:
    """Rotary as Hugging Face models write it, cosines and sines at full width and given."""
    return q * cos + _turn_half(q) * sin, k * cos + _turn_half(k) * sin


def rotate_gptj(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> _Pair:
    return q * cos + _turn_pair(q) * sin, k * cos + _turn_pair(k) * sin


def rotate_one(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos.unsqueeze(-2).to(x.dtype), sin.unsqueeze(-2).to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rotate_sections(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> _Pair:
    """Multimodal rotary as Hugging Face models write it: ``[3, tokens, head_size]`` cut up and
    put together from one row for each section, in every layer."""
    sizes = SECTIONS * 2
    cos = torch.cat([part[i % 3] for i, part in enumerate(cos.split(sizes, -1))], -1)
    sin = torch.cat([part[i % 3] for i, part in enumerate(sin.split(sizes, -1))], -1)
    return rotate_neox(q, k, cos.unsqueeze(-2), sin.unsqueeze(-2))


def rotate_interleaved(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> _Pair:
    """Interleaved sections as Hugging Face models write them: the cosines of a pair are picked
    once for all layers, so they come ready and a layer only turns."""
    return rotate_neox(q, k, cos, sin)


def norm_and_rotate(
    q: Tensor, k: Tensor, q_scale: Tensor, k_scale: Tensor, cos: Tensor, sin: Tensor
) -> _Pair:
    """Norms of heads, then rotary, as Hugging Face's Qwen3 model writes it."""
    return rotate_neox(llama_rms_norm(q, q_scale, EPS), llama_rms_norm(k, k_scale, EPS), cos, sin)


def _qk(tokens: int, dtype: torch.dtype) -> _Pair:
    return (
        tensor(tokens, HEADS * HEAD_SIZE, dtype=dtype),
        tensor(tokens, KEY_HEADS * HEAD_SIZE, dtype=dtype),
    )


def _positions(tokens: int) -> Tensor:
    return torch.arange(tokens) + 700


def _inputs(style: bool, tokens: int, dtype: torch.dtype) -> Args:
    return (_positions(tokens), *_qk(tokens, dtype), HEAD_SIZE, table(), style)


def _multimodal(interleaved: bool, tokens: int, dtype: torch.dtype) -> Args:
    positions = torch.stack([_positions(tokens) + shift for shift in (0, 5, 9)])
    sizes = (HEAD_SIZE, table(), SECTIONS, interleaved, True)
    return (positions, *_qk(tokens, dtype), *sizes)


def _one(tokens: int, dtype: torch.dtype) -> Args:
    cos, sin = table()[_positions(tokens)].chunk(2, -1)
    x = tensor(tokens, HEADS, HEAD_SIZE, dtype=dtype)
    return x, cos.contiguous(), sin.contiguous(), True


def _fused_qkv(tokens: int, dtype: torch.dtype) -> Args:
    sizes = [HEADS * HEAD_SIZE, KEY_HEADS * HEAD_SIZE, KEY_HEADS * HEAD_SIZE]
    q, k, _ = tensor(tokens, sum(sizes), dtype=dtype).split(sizes, -1)
    scale = weight(HEAD_SIZE, dtype)
    return _positions(tokens), q, k, HEAD_SIZE, scale, scale, EPS, table(), True


def _heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, HEAD_SIZE))


def _wide_table(positions: Tensor, dtype: torch.dtype, style: bool) -> _Pair:
    """Cosines and sines as a Hugging Face model keeps them: at full width, in its own dtype."""
    cos, sin = table()[positions].chunk(2, -1)
    if style:
        return torch.cat((cos, cos), -1).to(dtype), torch.cat((sin, sin), -1).to(dtype)
    return cos.repeat_interleave(2, -1).to(dtype), sin.repeat_interleave(2, -1).to(dtype)


def _for_eager(positions: Tensor, q: Tensor, k: Tensor, *rest: Any) -> Args:
    cos, sin = _wide_table(positions, q.dtype, rest[-1])
    return _heads(q), _heads(k), cos.unsqueeze(-2), sin.unsqueeze(-2)


def _for_sections(positions: Tensor, q: Tensor, k: Tensor, *_: Any) -> Args:
    return (_heads(q), _heads(k), *_wide_table(positions, q.dtype, True))


def _for_interleaved(positions: Tensor, q: Tensor, k: Tensor, *_: Any) -> Args:
    source = torch.zeros(HEAD_SIZE // 2, dtype=torch.long)
    for row in (1, 2):
        source[row : 3 * SECTIONS[row] : 3] = row
    pair = torch.arange(HEAD_SIZE // 2)
    cos, sin = (half[source, :, pair].t() for half in table()[positions].chunk(2, -1))
    wide = [torch.cat((half, half), -1).to(q.dtype).unsqueeze(-2) for half in (cos, sin)]
    return (_heads(q), _heads(k), *wide)


def _for_norm(positions: Tensor, q: Tensor, k: Tensor, _: int, *rest: Any) -> Args:
    cos, sin = _wide_table(positions, q.dtype, True)
    scales = rest[:2]
    return (_heads(q), _heads(k), *scales, cos.unsqueeze(-2), sin.unsqueeze(-2))


def _wheel(ops: Any) -> Contender:
    """The wheel turns in place only: copies first, for the same result."""
    op = ops.rotary_embedding.default

    def call(
        positions: Tensor, q: Tensor, k: Tensor, head_size: int, cache: Tensor, style: bool
    ) -> _Pair:
        q, k = q.clone(), k.clone()
        op(positions, q, k, head_size, cache, style)
        return q, k

    return Contender(call, _for_wheel)


def _wheel_(ops: Any) -> Contender:
    return Contender(ops.rotary_embedding.default, _for_wheel)


def _for_wheel(positions: Tensor, q: Tensor, k: Tensor, size: int, _: Tensor, style: bool) -> Args:
    """The engine keeps the table in the dtype of the query."""
    return positions, q, k, size, _table_as(q.dtype), style


def _first(count: int) -> Callable[..., Args]:
    """The tensors that a layer is called with; the rest it was built with."""
    return lambda *args: args[:count]


def _layer(style: bool) -> Callable[[Args], Contender]:
    def build(_: Args) -> Contender:
        return Contender(layers.RotaryEmbedding(*_SIZES, is_neox_style=style), _first(3))

    return build


def _multimodal_layer(interleaved: bool) -> Callable[[Args], Contender]:
    def build(_: Args) -> Contender:
        options = {"mrope_section": SECTIONS, "mrope_interleaved": interleaved}
        return Contender(layers.MRotaryEmbedding(*_SIZES, **options), _first(3))

    return build


def _apply_layer(_: Args) -> Contender:
    return Contender(layers.ApplyRotaryEmb(), _first(3))


def _norm_layer(_: Args) -> Contender:
    module = layers.QKNormRope(layers.RotaryEmbedding(*_SIZES), eps=EPS)
    return Contender(module, lambda *args: (*args[:3], *args[4:6]))


def _clone_qk(_: Tensor, q: Tensor, k: Tensor, *__: Any) -> _Pair:
    return q.contiguous().clone(), k.contiguous().clone()


def _gather_qk(_: Tensor, q: Tensor, k: Tensor, *__: Any) -> _Pair:
    return q.contiguous(), k.contiguous()


def _touch_qk(_: Tensor, q: Tensor, k: Tensor, *__: Any) -> None:
    touch(q)
    touch(k)


def rows() -> Iterator[Row]:
    for style, name, eager in ((True, "neox", rotate_neox), (False, "gptj", rotate_gptj)):
        inputs = functools.partial(_inputs, style)
        yield Row(
            op="rotary_embedding",
            variant=name,
            inputs=inputs,
            eager=Contender(eager, _for_eager),
            traffic=Contender(_clone_qk),
            layer=_layer(style),
            wheel=_wheel,
        )
        yield Row(
            op="rotary_embedding_",
            variant=name,
            inputs=inputs,
            eager=Contender(eager, _for_eager),
            traffic=Contender(_touch_qk),
            wheel=_wheel_,
            written=(1, 2),
        )
    yield Row(
        op="multimodal_rotary_embedding",
        variant="sections",
        inputs=functools.partial(_multimodal, False),
        eager=Contender(rotate_sections, _for_sections),
        traffic=Contender(_clone_qk),
        layer=_multimodal_layer(False),
    )
    yield Row(
        op="multimodal_rotary_embedding",
        variant="interleaved",
        inputs=functools.partial(_multimodal, True),
        eager=Contender(rotate_interleaved, _for_interleaved),
        traffic=Contender(_clone_qk),
        layer=_multimodal_layer(True),
    )
    yield Row(
        op="apply_rotary_emb",
        inputs=_one,
        eager=Contender(rotate_one, _first(3)),
        traffic=Contender(lambda x, *_: x.clone()),
        layer=_apply_layer,
    )
    yield Row(
        op="qk_norm_rope",
        inputs=_fused_qkv,
        eager=Contender(norm_and_rotate, _for_norm),
        traffic=Contender(_gather_qk),
        layer=_norm_layer,
    )
