# SPDX-License-Identifier: Apache-2.0
"""Rows of the norms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from vllm_ops.shared import layers

from .row import (
    EPS,
    HEAD_SIZE,
    HEADS,
    HIDDEN,
    KEY_HEADS,
    Args,
    Contender,
    Row,
    tensor,
    touch,
    weight,
)

GROUP = 512
_Pair = tuple[Tensor, Tensor]


def llama_rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """RMSNorm as Hugging Face's Llama model writes it."""
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return scale * wide.to(x.dtype)


def gemma_rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """RMSNorm as Gemma models write it: all in fp32, the weight counted from one."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + scale.float())).type_as(x)


def torch_rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, scale.shape, scale, eps)


def llama_add_rms_norm(x: Tensor, residual: Tensor, scale: Tensor, eps: float) -> _Pair:
    total = x + residual
    return llama_rms_norm(total, scale, eps), total


def torch_add_rms_norm(x: Tensor, residual: Tensor, scale: Tensor, eps: float) -> _Pair:
    total = x + residual
    return F.rms_norm(total, scale.shape, scale, eps), total


def layer_norm(x: Tensor, scale: Tensor, bias: Tensor, eps: float) -> Tensor:
    """LayerNorm as written out by hand."""
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * scale + bias


def torch_layer_norm(x: Tensor, scale: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, scale.shape, scale, bias, eps)


def gated_rms_norm(
    x: Tensor, gate: Tensor, scale: Tensor, eps: float, group: int | None, before: bool
) -> Tensor:
    """The gated norm as Mamba-2 models write it: fp32 throughout, norm or gate first."""
    wide = x.float()
    if not before:
        wide = wide * F.silu(gate.float())
    parts = wide if group is None else wide.view(*wide.shape[:-1], -1, group)
    parts = parts * torch.rsqrt(parts.pow(2).mean(-1, keepdim=True) + eps)
    wide = parts.view(x.shape) * scale.float()
    if before:
        wide = wide * F.silu(gate.float())
    return wide.to(x.dtype)


def _plain(tokens: int, dtype: torch.dtype) -> Args:
    return tensor(tokens, HIDDEN, dtype=dtype), weight(HIDDEN, dtype), EPS


def _residual(tokens: int, dtype: torch.dtype) -> Args:
    x, scale, eps = _plain(tokens, dtype)
    return x, tensor(tokens, HIDDEN, dtype=dtype), scale, eps


def _plain_in_place(tokens: int, dtype: torch.dtype) -> Args:
    """With a weight of ones: any other, applied to its own result time after time, leaves
    subnormal numbers and one large one."""
    return tensor(tokens, HIDDEN, dtype=dtype), torch.ones(HIDDEN, dtype=dtype), EPS


def _residual_in_place(tokens: int, dtype: torch.dtype) -> Args:
    x, scale, eps = _plain_in_place(tokens, dtype)
    return x, tensor(tokens, HIDDEN, dtype=dtype), scale, eps


def _query_heads(tokens: int, dtype: torch.dtype) -> Args:
    """The query heads inside the output of a fused qkv projection: rows with gaps between."""
    width = (HEADS + 2 * KEY_HEADS) * HEAD_SIZE
    query = tensor(tokens, width, dtype=dtype)[:, : HEADS * HEAD_SIZE]
    return query.view(tokens, HEADS, HEAD_SIZE), weight(HEAD_SIZE, dtype), EPS


def _with_bias(tokens: int, dtype: torch.dtype) -> Args:
    x, scale, eps = _plain(tokens, dtype)
    return x, scale, scale - 1, eps


def _layer(name: str, **options: Any) -> Callable[[Args], Contender]:
    """A norm layer: called with the tensors before the weight."""

    def build(args: Args) -> Contender:
        place = next(i for i, a in enumerate(args) if isinstance(a, Tensor) and a.dim() == 1)
        scale = args[place]
        module = getattr(layers, name)(scale.numel(), eps=EPS, dtype=scale.dtype, **options)
        with torch.no_grad():
            module.weight.copy_(scale)
            if getattr(module, "bias", None) is not None:
                module.bias.copy_(args[place + 1])
        return Contender(module, lambda *args: args[:place])

    return build


def _wheel_rms_norm(ops: Any) -> Contender:
    op = ops.rms_norm.default

    def call(x: Tensor, scale: Tensor, eps: float) -> Tensor:
        # The wheel's kernel takes rows without gaps and heads in between for granted.
        x = x.contiguous()
        out = torch.empty_like(x)
        op(out, x, scale, eps)
        return out

    return Contender(call)


def _wheel_add_rms_norm(ops: Any) -> Contender:
    """The wheel has this operator in place only: copies first, for the same result."""
    op = ops.fused_add_rms_norm.default

    def call(x: Tensor, residual: Tensor, scale: Tensor, eps: float) -> _Pair:
        x, residual = x.clone(), residual.clone()
        op(x, residual, scale, eps)
        return x, residual

    return Contender(call)


def _wheel_add_rms_norm_(ops: Any) -> Contender:
    return Contender(ops.fused_add_rms_norm.default)


def _wheel_rms_norm_(ops: Any) -> Contender:
    op = ops.rms_norm.default
    return Contender(lambda x, scale, eps: op(x, x, scale, eps))


def _clone(x: Tensor, *_: Any) -> Tensor:
    return x.contiguous() if not x.is_contiguous() else x.clone()


def _clone_two(x: Tensor, y: Tensor, *_: Any) -> _Pair:
    return x.clone(), y.clone()


def _sum(x: Tensor, gate: Tensor, *_: Any) -> Tensor:
    return x + gate


def _touch(*written: int) -> Contender:
    def call(*args: Any) -> None:
        for place in written:
            touch(args[place])

    return Contender(call)


def rows() -> Iterator[Row]:
    yield Row(
        op="rms_norm",
        inputs=_plain,
        eager=Contender(llama_rms_norm),
        functional=Contender(torch_rms_norm),
        traffic=Contender(_clone),
        layer=_layer("RMSNorm"),
        wheel=_wheel_rms_norm,
    )
    yield Row(
        op="rms_norm",
        variant="gemma",
        inputs=lambda tokens, dtype: (*_plain(tokens, dtype), None, 1.0, False),
        eager=Contender(gemma_rms_norm, lambda *args: args[:3]),
        traffic=Contender(_clone),
        layer=_layer("GemmaRMSNorm"),
    )
    yield Row(
        op="rms_norm",
        variant="heads of qkv",
        inputs=_query_heads,
        eager=Contender(llama_rms_norm),
        functional=Contender(torch_rms_norm),
        traffic=Contender(_clone),
        layer=_layer("RMSNorm"),
        wheel=_wheel_rms_norm,
    )
    yield Row(
        op="rms_norm_",
        inputs=_plain_in_place,
        eager=Contender(llama_rms_norm),
        functional=Contender(torch_rms_norm),
        traffic=_touch(0),
        wheel=_wheel_rms_norm_,
        written=(0,),
    )
    yield Row(
        op="fused_add_rms_norm",
        inputs=_residual,
        eager=Contender(llama_add_rms_norm),
        functional=Contender(torch_add_rms_norm),
        traffic=Contender(_clone_two),
        layer=_layer("RMSNorm"),
        wheel=_wheel_add_rms_norm,
    )
    yield Row(
        op="fused_add_rms_norm_",
        inputs=_residual_in_place,
        eager=Contender(llama_add_rms_norm),
        functional=Contender(torch_add_rms_norm),
        traffic=_touch(0, 1),
        wheel=_wheel_add_rms_norm_,
        written=(0, 1),
    )
    yield Row(
        op="layer_norm",
        inputs=_with_bias,
        eager=Contender(layer_norm),
        functional=Contender(torch_layer_norm),
        traffic=Contender(_clone),
        layer=_layer("LayerNorm"),
    )
    for variant, group, before in (("norm first", None, True), ("gate first", GROUP, False)):
        yield Row(
            op="rms_norm_gated",
            variant=variant,
            inputs=_gated_inputs(group, before),
            eager=Contender(gated_rms_norm),
            traffic=Contender(_sum),
            layer=_layer("RMSNormGated", group_size=group, norm_before_gate=before),
        )


def _gated_inputs(group: int | None, before: bool) -> Callable[[int, torch.dtype], Args]:
    def inputs(tokens: int, dtype: torch.dtype) -> Args:
        x, gate, scale, eps = _residual(tokens, dtype)
        return x, gate, scale, eps, group, before

    return inputs
