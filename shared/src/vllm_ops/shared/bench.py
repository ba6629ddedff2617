# SPDX-License-Identifier: Apache-2.0
"""``vllm-ops bench``: the kernels of a backend beside the references, plain torch with the same
roundings.

A look at one machine, at the sizes of an 8B model, in inference mode. The two take turns, and a
figure is the fastest of many samples; inputs stay in the caches where they fit. The benchmarks of
the repository compare with more, over more shapes, and find out whether others used the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from . import _table, backends
from .ops import OPS
from .quantize import quantize_int8

__all__ = ["DTYPES", "TOKENS", "Row", "run", "table"]

DTYPES = ("bfloat16", "float16", "float32")
TOKENS = (1, 256)
HIDDEN, INNER, HEADS, KEY_HEADS, HEAD, POSITIONS = 4096, 14336, 32, 8, 128, 4096
SAMPLE_S = 1e-3


@dataclass(frozen=True)
class Row:
    """One operator and size, in microseconds a call.

    Attributes:
        tokens: rows of the input.
        kernel: the backend's kernel.
        reference: the reference in plain torch.
    """

    op: str
    tokens: int
    kernel: float
    reference: float


def _arguments(op: str, tokens: int, dtype: torch.dtype, device: str) -> tuple[Any, ...]:
    """Of an operator that writes new tensors; the rest of its arguments are the defaults."""

    def make(*shape: int, of: torch.dtype = dtype) -> Tensor:
        generator = torch.Generator().manual_seed(len(shape))
        return torch.randn(shape, generator=generator).to(of).to(device)

    inner = make(tokens, INNER)
    x, weight = make(tokens, HIDDEN), make(HIDDEN)
    positions = torch.arange(tokens, device=device) % POSITIONS
    query, key = make(tokens, HEADS, HEAD), make(tokens, KEY_HEADS, HEAD)
    turned = (positions, query, key, HEAD)
    angles = make(POSITIONS, HEAD, of=torch.float32)
    known: dict[str, tuple[Any, ...]] = {
        "silu_and_mul_with_clamp": (make(tokens, 2 * INNER), 7.0),
        "xielu": (inner, make(1), make(1)),
        "rms_norm": (x, weight, 1e-6),
        "fused_add_rms_norm": (x, x, weight, 1e-6),
        "layer_norm": (x, weight, weight, 1e-6),
        "rms_norm_gated": (x, x, weight, 1e-6),
        "linear": (x, make(HIDDEN, HIDDEN)),
        "linear_int8": (x, *quantize_int8(make(HIDDEN, HIDDEN))),
        "rotary_embedding": (*turned, angles),
        "multimodal_rotary_embedding": (positions.expand(3, -1), *turned[1:], angles, [16, 24, 24]),
        "apply_rotary_emb": (query, make(tokens, HEAD // 2), make(tokens, HEAD // 2)),
        "qk_norm_rope": (*turned, make(HEAD), make(HEAD), 1e-6, angles),
    }
    if op in known:
        return known[op]
    required = [a for a in OPS[op].overload._schema.arguments if not a.has_default_value()]
    if len(required) != 1:
        raise ValueError(f"bench: no arguments are known for {op}")
    return (make(tokens, 2 * INNER) if "_and_" in op else inner,)


def _waiter(device: str) -> Callable[[], None]:
    """What returns when the device has done its work.

    Raises:
        RuntimeError: nothing is known to wait with, so nothing can be timed.
    """
    if device == "cpu":
        return lambda: None
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != device:
        raise RuntimeError(f"bench: torch.accelerator knows no {device}, so nobody could wait")
    return torch.accelerator.synchronize


def _sample(call: Callable[[], Any], count: int, wait: Callable[[], None]) -> float:
    wait()
    start = perf_counter()
    for _ in range(count):
        call()
    wait()
    return (perf_counter() - start) / count


def _fastest(calls: Sequence[Callable[[], Any]], wait: Any, seconds: float) -> list[float]:
    """Of each, in turns; samples of about ``SAMPLE_S``."""
    once = [min(_sample(call, 1, wait) for _ in range(3)) for call in calls]
    counts = [max(1, min(10_000, int(SAMPLE_S / max(least, 1e-9)))) for least in once]
    best = [float("inf")] * len(calls)
    end, rounds = perf_counter() + seconds, 0
    while rounds < 3 or perf_counter() < end:
        rounds += 1
        for i, call in enumerate(calls):
            best[i] = min(best[i], _sample(call, counts[i], wait))
    return best


def run(
    name: str,
    *,
    ops: Collection[str] | None = None,
    dtype: str = "bfloat16",
    tokens: Sequence[int] = TOKENS,
    seconds: float = 0.1,
) -> list[Row]:
    """Time every operator that the backend has a kernel for.

    Args:
        name: of the backend.
        ops: only these.
        seconds: of measuring, for each row.

    Raises:
        RuntimeError: the backend cannot be used here, or its device cannot be timed.
        ValueError: an operator that the backend has no kernel for, or no tokens.
    """
    probe = backends.probe(name)
    if not probe.usable or probe.backend is None:
        raise RuntimeError(f"bench: {name} cannot be used here: {probe.reason}")
    wanted = [op for op in OPS if op in probe.ops and not OPS[op].in_place]
    if ops is not None:
        missing = sorted(set(ops) - set(wanted))
        if missing:
            raise ValueError(f"bench: {name} has no kernel to time for {', '.join(missing)}")
        wanted = [op for op in wanted if op in ops]
    if min(tokens) < 1:
        raise ValueError(f"bench: tokens must be above 0, got {min(tokens)}")
    device = probe.backend.device_type
    wait = _waiter(device)
    rows = []
    with torch.inference_mode():
        for op in wanted:
            for count in tokens:
                args = _arguments(op, count, getattr(torch, dtype), device)
                calls = [lambda c=c, a=args: c(*a) for c in (OPS[op].overload, OPS[op].native)]
                kernel, reference = _fastest(calls, wait, seconds)
                rows.append(Row(op, count, kernel * 1e6, reference * 1e6))
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as text; ``ratio`` is how many times faster the kernel is."""
    head = ["op", "tokens", "kernel us", "reference us", "ratio"]
    body = [
        [row.op, str(row.tokens), f"{row.kernel:.1f}", f"{row.reference:.1f}",
         f"{row.reference / row.kernel:.2f}"]
        for row in rows
    ]  # fmt: skip
    return _table.render(head, body)
