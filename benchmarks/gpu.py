# SPDX-License-Identifier: Apache-2.0
"""The GPU kernels against eager torch, ``torch.compile``, Triton and a copy of the same bytes.

    python benchmarks/gpu.py                         bf16, 1 to 16,384 tokens
    python benchmarks/gpu.py --dtype fp32 --tokens 4096 --op rms_norm

Times are those of CUDA events around a burst of 20 calls, the shortest of many bursts, the
contenders in turn. The calls of a burst take other buffers in turn, inputs and outputs, together
twice as large as the L2 cache, or twenty of them where that is less: few tokens fit into any cache,
as they do in a model. Below ``--graph-below`` tokens a burst is replayed from a CUDA graph: what is
compared is the kernel, not the launch. ``copy`` reads and writes as many bytes as the operator has
to; a bandwidth of 100 % is the copy's.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm_ops.shared.ops import OPS

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DEVICE = "cuda"
CALLS = 20
EPS = 1e-6
Args = tuple[Any, ...]
Call = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """An operator at sizes of a 7-billion-parameter Llama: ``args`` for a number of tokens.

    ``parameters`` are the arguments that all tokens share, which a cache holds.
    """

    op: str
    args: Callable[[int, torch.dtype], Args]
    parameters: frozenset[int] = frozenset()


def _random(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=DEVICE)


def _rotary(tokens: int, dtype: torch.dtype) -> Args:
    positions = torch.arange(tokens, device=DEVICE) % 4096
    table = _random(4096, 128, dtype=torch.float32)
    query, key = (_random(tokens, heads * 128, dtype=dtype) for heads in (32, 8))
    return positions, query, key, 128, table


def _qk_norm(tokens: int, dtype: torch.dtype) -> Args:
    positions, query, key, size, table = _rotary(tokens, dtype)
    weight = _random(size, dtype=dtype)
    return positions, query, key, size, weight, weight, EPS, table


def _add_norm(tokens: int, dtype: torch.dtype) -> Args:
    x, residual = (_random(tokens, 4096, dtype=dtype) for _ in range(2))
    return x, residual, _random(4096, dtype=dtype), EPS


def _norm(tokens: int, dtype: torch.dtype) -> Args:
    return _random(tokens, 4096, dtype=dtype), _random(4096, dtype=dtype), EPS


ROWS = (
    Row("silu_and_mul", lambda n, dtype: (_random(n, 2 * 11008, dtype=dtype),)),
    Row("gelu_and_mul", lambda n, dtype: (_random(n, 2 * 11008, dtype=dtype), "tanh")),
    Row("gelu_tanh", lambda n, dtype: (_random(n, 11008, dtype=dtype),)),
    Row("rms_norm", _norm, frozenset({1})),
    Row("fused_add_rms_norm", _add_norm, frozenset({2})),
    Row("layer_norm", lambda n, dtype: (*_norm(n, dtype)[:2], None, EPS), frozenset({1})),
    Row("rotary_embedding", _rotary, frozenset({4})),
    Row("qk_norm_rope", _qk_norm, frozenset({4, 5, 7})),
)


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    return [value for value in values if isinstance(value, Tensor)]


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def traffic(row: Row, args: Args, outputs: Any) -> int:
    """The bytes that have to move: what has a row per token, in and out."""
    rows = [value for place, value in enumerate(args) if place not in row.parameters]
    return _bytes(_tensors(rows)) + _bytes(_tensors(outputs))


def prepare(call: Call, sets: Sequence[Args], graph: bool) -> Callable[[], object]:
    """A burst of ``call`` over ``sets`` in turn, warmed up, as a function or a graph's replay."""

    def burst() -> None:
        # Held until its turn comes again: else the allocator gives every call the memory of the
        # last, whose output then never leaves the cache.
        outputs: list[object] = [None] * len(sets)
        for i in range(CALLS):
            outputs[i % len(sets)] = call(*sets[i % len(sets)])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # which is still making the inputs
    with torch.cuda.stream(stream):
        burst()
        burst()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    if not graph:
        burst()  # fills the memory pool of this stream
        return burst
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        burst()
    captured.replay()
    return captured.replay


def times_us(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Microseconds of one call: the shortest burst of each, all in turn."""
    best = dict.fromkeys(runs, float("inf"))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(repeats):
        for name, run in runs.items():
            torch.cuda.synchronize()
            begin.record()
            run()
            end.record()
            end.synchronize()
            best[name] = min(best[name], begin.elapsed_time(end) * 1e3 / CALLS)
    return best


def contenders(op: str) -> dict[str, Call]:
    native = OPS[op].native
    found: dict[str, Call] = {
        "kernel": OPS[op].overload,
        "eager": native,
        "compile": torch.compile(native, dynamic=False),
    }
    try:
        versions = importlib.import_module("gpu_triton").VERSIONS
    except ImportError:
        versions = {}
    if op in versions:
        found["triton"] = versions[op]
    return found


def measure(row: Row, tokens: int, dtype: torch.dtype, options: argparse.Namespace) -> str:
    """One line of the table."""
    torch._dynamo.reset()  # else the sizes before this one count as recompilations, up to a limit
    first = row.args(tokens, dtype)
    moved = traffic(row, first, OPS[row.op].overload(*first))
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    count = min(CALLS, 2 + 2 * l2 // max(moved, 1))
    sets = [first, *(row.args(tokens, dtype) for _ in range(count - 1))]
    graph = tokens < options.graph_below
    half = max(1, moved // 2)
    pairs = [
        tuple(torch.empty(half, dtype=torch.uint8, device=DEVICE) for _ in range(2))
        for _ in range(count)
    ]
    runs = {"copy": prepare(lambda to, of: to.copy_(of), pairs, graph)}
    for name, call in contenders(row.op).items():
        runs[name] = prepare(call, sets, graph)
    times = times_us(runs, options.repeats)
    share = 100 * times["copy"] / times["kernel"]
    figures = "".join(f"{name} {value:9.2f}  " for name, value in times.items())
    rate = moved / times["kernel"] / 1e6
    return f"{row.op:20} {tokens:6} {figures} us  {rate:6.2f} TB/s  {share:5.1f} % of the copy"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The GPU kernels beside their peers.")
    parser.add_argument("--op", default=",".join(row.op for row in ROWS))
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("--tokens", default="1,32,256,4096,16384")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--graph-below", type=int, default=8192, metavar="TOKENS")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    options = parse(argv)
    package = importlib.import_module(
        "vllm_ops.rocm" if torch.version.hip is not None else "vllm_ops.cuda"
    )
    usable, reason = package.available()
    if not usable:
        print(f"benchmarks/gpu.py needs a GPU: {reason}", file=sys.stderr)
        return 1
    package.load()
    print(f"{reason}; torch {torch.__version__}; {options.dtype}")
    with torch.inference_mode():
        for row in ROWS:
            if row.op in options.op.split(","):
                for tokens in map(int, options.tokens.split(",")):
                    print(measure(row, tokens, DTYPES[options.dtype], options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
