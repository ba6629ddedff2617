# SPDX-License-Identifier: Apache-2.0
"""What the interface costs: module calls against direct calls of the same operator, construction,
and a small decoder whose layers are CustomOps against one that calls the kernels itself.

    python benchmarks/overhead.py             about a minute
    python benchmarks/overhead.py --check     exit 1 if a bound of the interface does not hold

Contenders of a table take turns; a figure is the fastest sample (see ``opbench/measure.py``).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from opbench.measure import Entry, measure, paired
from torch import Tensor, nn
from vllm_ops.shared import RMSNorm, RotaryEmbedding, SiluAndMul, functional

DIRECT = "torch.ops"
MODULE = "module"
MODES = {
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "grad": torch.enable_grad,
}

CALL_US = 0.5
"""A module call over the direct call, in inference mode."""

RMS_NORM = 1.3
"""RMSNorm on (1, 4096) bf16 against the bare operator."""

BUILD_MS = 50.0
"""1,000 modules."""

MODEL = 1.02
"""The decoder with layers against the one with direct calls. Two runs of the same code differ by
up to 2 % here, so less than that is not measurable."""


@dataclass(frozen=True)
class Figure:
    """One measured number and the bound that it must keep, if any."""

    what: str
    value: float
    unit: str
    bound: float | None = None

    @property
    def holds(self) -> bool:
        return self.bound is None or self.value <= self.bound

    def __str__(self) -> str:
        bound = "" if self.bound is None else f"   bound {self.bound:g}"
        return f"{self.what:<52}{self.value:>10.3f} {self.unit:<5}{bound}" + (
            "" if self.holds else "   NOT MET"
        )


class Plain(nn.Module):
    """What a layer costs without the interface: ``nn.Module.__call__`` and a direct call."""

    def __init__(self, call: Callable[..., Any], *rest: Any) -> None:
        super().__init__()
        self.call, self.rest = call, rest

    def forward(self, *args: Any) -> Any:
        return self.call(*args, *self.rest)


def layers() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, tuple[Any, ...]]]:
    """By name: the operator and its arguments, the layer and its arguments."""
    ops = torch.ops.vllm_ops
    bf16 = torch.bfloat16
    norm = RMSNorm(4096, dtype=bf16)
    x = torch.randn(1, 4096, dtype=bf16)
    small = torch.randn(1, 128, dtype=bf16)
    rope = RotaryEmbedding(64, 64, 128, 10000.0)
    positions = torch.tensor([3])
    query, key = torch.randn(1, 64, dtype=bf16), torch.randn(1, 64, dtype=bf16)
    cache = rope.cos_sin_cache
    return {
        "rms_norm (1, 4096) bf16": (
            ops.rms_norm.default,
            (x, norm.weight, norm.eps),
            norm,
            (x,),
        ),
        "fused_add_rms_norm (1, 4096) bf16": (
            ops.fused_add_rms_norm.default,
            (x, x, norm.weight, norm.eps),
            norm,
            (x, x),
        ),
        "silu_and_mul (1, 128) bf16": (ops.silu_and_mul.default, (small,), SiluAndMul(), (small,)),
        "rotary_embedding (1, 64) bf16": (
            ops.rotary_embedding.default,
            (positions, query, key, 64, cache),
            rope,
            (positions, query, key),
        ),
    }


def calls(seconds: float, order: random.Random) -> list[Figure]:
    """Every layer in every mode, and what a plain nn.Module around the operator costs."""
    figures = []
    for name, (op, op_args, layer, args) in layers().items():
        plain = Plain(op, *op_args[len(args) :])
        function = getattr(functional, op._schema.name.split("::")[1])
        for mode, context in MODES.items():
            entries = [
                Entry(DIRECT, op, [op_args]),
                Entry("functional", function, [op_args]),
                Entry(MODULE, layer, [args]),
                Entry("plain nn.Module", plain, [args]),
            ]
            with context():
                measure(entries, seconds, order)
            best = {entry.label: entry.best * 1e6 for entry in entries}
            print(
                f"{name:<36}{mode:<11}"
                + "".join(f"{label} {value:.2f}  " for label, value in best.items())
                + "us"
            )
            if mode == "inference":
                over = best[MODULE] - best[DIRECT]
                figures.append(Figure(f"{name}: module - torch.ops", over, "us", CALL_US))
                if name.startswith("rms_norm"):
                    ratio = best[MODULE] / best[DIRECT]
                    figures.append(Figure(f"{name}: module / torch.ops", ratio, "x", RMS_NORM))
    return figures


def construction() -> list[Figure]:
    """Processor time of building 1,000 modules, the least of 20 times."""
    kinds: dict[str, Callable[[], Any]] = {
        "RMSNorm": lambda: RMSNorm(64),
        "SiluAndMul": SiluAndMul,
        "nn.RMSNorm": lambda: nn.RMSNorm(64),
    }
    least = dict.fromkeys(kinds, float("inf"))
    gc.disable()
    for _ in range(20):
        for name, build in kinds.items():
            start = time.thread_time()
            kept = [build() for _ in range(1000)]
            least[name] = min(least[name], time.thread_time() - start)
            del kept
    gc.enable()
    return [
        Figure(f"1,000 x {name}", value * 1e3, "ms", None if "nn." in name else BUILD_MS)
        for name, value in least.items()
    ]


HIDDEN, INNER, HEADS, DEPTH, HEAD = 576, 1536, 9, 8, 64
"""The sizes of SmolLM2-135M, with 8 of its 30 layers and without attention."""


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 2 * HEADS * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)
        self.first = RMSNorm(HIDDEN)
        self.second = RMSNorm(HIDDEN)


class Decoder(nn.Module):
    """The operators as layers, or called directly with the same weights."""

    def __init__(self, blocks: nn.ModuleList, direct: bool) -> None:
        super().__init__()
        self.blocks, self.direct = blocks, direct
        self.rope = RotaryEmbedding(HEAD, HEAD, 256, 10000.0)
        self.act = SiluAndMul()

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        step = self.directly if self.direct else self.by_layers
        residual = torch.zeros_like(x)
        for block in self.blocks:
            x, residual = step(block, x, residual, positions)
        return x

    def by_layers(
        self, block: Any, x: Tensor, residual: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        x, residual = block.first(x, residual)
        query, key = block.qkv(x).chunk(2, -1)
        query, key = self.rope(positions, query, key)
        x, residual = block.second(block.out(query + key), residual)
        return block.down(self.act(block.gate_up(x))), residual

    def directly(
        self, block: Any, x: Tensor, residual: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        ops = torch.ops.vllm_ops
        norm = ops.fused_add_rms_norm.default
        x, residual = norm(x, residual, block.first.weight, 1e-6)
        query, key = block.qkv(x).chunk(2, -1)
        query, key = ops.rotary_embedding.default(
            positions, query, key, HEAD, self.rope.cos_sin_cache
        )
        x, residual = norm(block.out(query + key), residual, block.second.weight, 1e-6)
        return block.down(ops.silu_and_mul.default(block.gate_up(x))), residual


def _ratio(ours: Entry, theirs: Entry) -> float:
    """Paired; on a machine too busy for a quiet round, of the fastest samples; NaN without any."""
    ratio = paired(ours, theirs)
    if math.isnan(ratio) and ours.best is not None and theirs.best is not None:
        return ours.best / theirs.best
    return ratio


def model(seconds: float, order: random.Random) -> list[Figure]:
    """The decoder both ways, in inference mode; the median of ratios of the same round."""
    figures = []
    blocks = nn.ModuleList(Weights() for _ in range(DEPTH))
    for tokens in (1, 32):
        x, positions = torch.randn(tokens, HIDDEN), torch.arange(tokens)
        entries = [
            Entry(MODULE, Decoder(blocks, direct=False), [(x, positions)]),
            Entry(DIRECT, Decoder(blocks, direct=True), [(x, positions)]),
            Entry("again", Decoder(blocks, direct=True), [(x, positions)]),
        ]
        with torch.inference_mode():
            measure(entries, seconds, order)
        ratio, noise = (_ratio(entry, entries[1]) for entry in (entries[0], entries[2]))
        what = f"decoder, fp32, {tokens} tokens"
        figures.append(Figure(f"{what}: layers / direct calls", ratio, "x", MODEL))
        figures.append(Figure(f"{what}: direct calls / themselves", noise, "x"))
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What the CustomOp interface costs.")
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring, per table row")
    parser.add_argument("--check", action="store_true", help="exit 1 if a bound does not hold")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    args = parser.parse_args(argv)
    os.environ.setdefault("VLLM_OPS_DEVICE", "cpu")
    torch.set_num_threads(1)
    path = SiluAndMul().decision
    print(f"torch {torch.__version__}, {path.device} {path.version} {path.method}: {path.reason}\n")
    order = random.Random(0)  # noqa: S311
    figures = calls(args.seconds, order) + construction()
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    figures += model(4 * args.seconds, order)
    print("", *figures, sep="\n")
    if args.json:
        args.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    return int(args.check and not all(figure.holds for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
