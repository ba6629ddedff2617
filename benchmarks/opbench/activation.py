# SPDX-License-Identifier: Apache-2.0
"""Rows of the gated and the pointwise activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from vllm_ops.shared import layers

from .row import INTERMEDIATE, Args, Call, Contender, Row, bits, tensor

THRESHOLD = 0.1
LIMIT = 7.0
ALPHA = 1.702


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    d = x.shape[-1] // 2
    return x[..., :d], x[..., d:]


def silu_and_mul(x: Tensor) -> Tensor:
    gate, up = _halves(x)
    return F.silu(gate) * up


def mul_and_silu(x: Tensor) -> Tensor:
    up, gate = _halves(x)
    return up * F.silu(gate)


def gelu_and_mul(x: Tensor, approximate: str) -> Tensor:
    gate, up = _halves(x)
    return F.gelu(gate, approximate=approximate) * up


def fatrelu_and_mul(x: Tensor, threshold: float) -> Tensor:
    gate, up = _halves(x)
    return F.threshold(gate, threshold, 0.0) * up


def silu_and_mul_with_clamp(x: Tensor, limit: float) -> Tensor:
    gate, up = _halves(x)
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def swigluoai_and_mul(x: Tensor, alpha: float, limit: float) -> Tensor:
    gate = x[..., ::2].clamp(max=limit)
    up = x[..., 1::2].clamp(-limit, limit)
    return (up + 1) * (gate * torch.sigmoid(alpha * gate))


def gelu_new(x: Tensor) -> Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def gelu_fast(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def relu2(x: Tensor) -> Tensor:
    return F.relu(x).square()


def xielu(x: Tensor, alpha_p: Tensor, alpha_n: Tensor, beta: float, eps: float) -> Tensor:
    positive = F.softplus(alpha_p)
    negative = beta + F.softplus(alpha_n)
    return torch.where(
        x > 0,
        positive * x * x + beta * x,
        (torch.expm1(x.clamp(max=eps)) - x) * negative + beta * x,
    )


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _gated_traffic(x: Tensor) -> Tensor:
    """Both halves in, one out; an integer sum is the cheapest that torch has for it."""
    gate, up = _halves(bits(x))
    return gate + up


def _clone(x: Tensor, *_: Any) -> Tensor:
    return x.clone()


def _wheel(name: str, gated: bool) -> Callable[[Any], Contender]:
    """An operator of the wheel: ``(out, x)``, the output allocated in every call."""

    def build(ops: Any) -> Contender:
        op = getattr(ops, name).default

        def call(x: Tensor) -> Tensor:
            out = x.new_empty((x.shape[0], x.shape[1] // 2)) if gated else torch.empty_like(x)
            op(out, x)
            return out

        return Contender(call, lambda x, *_: (x,))

    return build


def _layer(name: str, *options: Any) -> Callable[[Args], Contender]:
    def build(_: Args) -> Contender:
        return Contender(getattr(layers, name)(*options), lambda x, *_: (x,))

    return build


def _gated(
    eager: Call, layer: str, *options: Any, variant: str = "", wheel: str | None = None
) -> Row:
    def inputs(tokens: int, dtype: torch.dtype) -> Args:
        return (tensor(tokens, 2 * INTERMEDIATE, dtype=dtype), *options)

    return Row(
        op=eager.__name__,
        variant=variant,
        inputs=inputs,
        eager=Contender(eager),
        traffic=Contender(lambda x, *_: _gated_traffic(x)),
        layer=_layer(layer, *options),
        wheel=None if wheel is None else _wheel(wheel, gated=True),
    )


def _pointwise(
    op: str,
    eager: Call,
    layer: str,
    functional: Call | None = None,
    wheel: str | None = None,
) -> Row:
    return Row(
        op=op,
        inputs=lambda tokens, dtype: (tensor(tokens, INTERMEDIATE, dtype=dtype),),
        eager=Contender(eager),
        functional=None if functional is None else Contender(functional),
        traffic=Contender(_clone),
        layer=_layer(layer),
        wheel=None if wheel is None else _wheel(wheel, gated=False),
    )


def _xielu_inputs(tokens: int, dtype: torch.dtype) -> Args:
    alphas = torch.tensor([0.55], dtype=dtype), torch.tensor([0.3], dtype=dtype)
    return (tensor(tokens, INTERMEDIATE, dtype=dtype), *alphas, 0.5, -1e-6)


def _xielu_layer(args: Args) -> Contender:
    module = layers.XIELU(dtype=args[0].dtype)
    with torch.no_grad():
        module.alpha_p.copy_(args[1])
        module.alpha_n.copy_(args[2])
    return Contender(module, lambda x, *_: (x,))


def rows() -> Iterator[Row]:
    yield _gated(silu_and_mul, "SiluAndMul", wheel="silu_and_mul")
    yield _gated(mul_and_silu, "MulAndSilu")
    yield _gated(gelu_and_mul, "GeluAndMul", "none", variant="none", wheel="gelu_and_mul")
    yield _gated(gelu_and_mul, "GeluAndMul", "tanh", variant="tanh", wheel="gelu_tanh_and_mul")
    yield _gated(fatrelu_and_mul, "FatreluAndMul", THRESHOLD)
    yield _gated(silu_and_mul_with_clamp, "SiluAndMulWithClamp", LIMIT)
    yield _gated(swigluoai_and_mul, "SwigluOAIAndMul", ALPHA, LIMIT)
    yield _pointwise("gelu", F.gelu, "GELU")
    yield _pointwise("gelu_tanh", gelu_tanh, "GELUTanh", wheel="gelu_tanh")
    yield _pointwise("gelu_new", gelu_new, "NewGELU", gelu_tanh, "gelu_new")
    yield _pointwise("gelu_fast", gelu_fast, "FastGELU", gelu_tanh, "gelu_fast")
    yield _pointwise("quick_gelu", quick_gelu, "QuickGELU", wheel="gelu_quick")
    yield _pointwise("relu2", relu2, "ReLUSquared")
    yield Row(
        op="xielu",
        inputs=_xielu_inputs,
        eager=Contender(xielu),
        traffic=Contender(_clone),
        layer=_xielu_layer,
    )
