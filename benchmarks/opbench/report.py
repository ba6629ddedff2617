# SPDX-License-Identifier: Apache-2.0
"""Tables, summary and progress."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from .cell import LABELS, NOISE, OURS, PEERS, Result
from .measure import FLOOR


def machine() -> str:
    """The CPU as documents name it: ``2-core AMD EPYC, AVX-512``."""
    model, flags = "unknown CPU", ""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() == "flags":
            flags = value
            break
    isa = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    return f"{os.cpu_count()}-core {model}, {isa}"


def header(lines: Iterable[str]) -> str:
    load = os.getloadavg()[0]
    about = [
        f"machine   {machine()}; load {load:.1f} at the start",
        f"torch     {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}",
        *lines,
        "times     us a call, the fastest of interleaved samples; ratios are ops/peer",
    ]
    return "\n".join(_wrap(line, 10) for line in about)


def _wrap(line: str, indent: int) -> str:
    return textwrap.fill(
        line, 80, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def table(name: str, results: Sequence[Result]) -> str:
    """Two lines a cell, 80 columns: times, then ratios."""
    native = "" if results[0].path == "kernel" else "  (no CPU kernel: native)"
    lines = [f"{name}{native}", " " * 14 + "".join(f"{label:>9}" for label in LABELS)]
    for r in results:
        times = "".join(f"{_number(r.us.get(label)):>9}" for label in LABELS)
        lines.append(f"{r.dtype:5}{r.tokens:>5} us {times}".rstrip())
        ratios = [None if label in OURS else r.ratio(label) for label in LABELS]
        shown = "".join(f"{'' if x is None else format(x, '.2f'):>9}" for x in ratios)
        lines.append(f"{'':9}ratio{shown}".rstrip())
    return "\n".join(lines)


def markdown(name: str, results: Sequence[Result]) -> str:
    lines = [
        f"### `{name}`",
        "",
        "| dtype | tokens | " + " | ".join(LABELS) + " |",
        "|---|---:|" + "---:|" * len(LABELS),
    ]
    for r in results:
        cells = []
        for label in LABELS:
            ratio = None if label in OURS else r.ratio(label)
            extra = "" if ratio is None else f" ({ratio:.2f})"
            cells.append(_number(r.us.get(label)) + extra)
        lines.append(f"| {r.dtype} | {r.tokens} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def overview(results: Sequence[Result]) -> str:
    """One line an operator in Markdown: times in one dtype, and the worst ratio to each peer."""
    dtypes = list(dict.fromkeys(r.dtype for r in results))
    shown = "bf16" if "bf16" in dtypes else dtypes[0]
    tokens = list(dict.fromkeys(r.tokens for r in results))
    others = (*PEERS, FLOOR)
    lines = [
        f"`ops` in microseconds for {shown}, and the highest ratio to each contender over "
        f"{', '.join(dtypes)}.",
        "",
        "| operator | " + " | ".join(f"{n} tokens" for n in tokens) + f" | {' | '.join(others)} |",
        "|---|" + "---:|" * (len(tokens) + len(others)),
    ]
    for name in dict.fromkeys(r.name for r in results):
        rows = [r for r in results if r.name == name]
        times = {r.tokens: r.us.get("ops") for r in rows if r.dtype == shown}
        worst = [max(_ratios(rows, other), default=None) for other in others]
        cells = [_number(times.get(n)) for n in tokens] + [_number(x) for x in worst]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _ratios(results: Sequence[Result], peer: str) -> list[float]:
    return [ratio for r in results if (ratio := r.ratio(peer)) is not None]


def summary(results: Sequence[Result]) -> str:
    """Per peer: how many cells, the middle and the worst ratio; then every slower cell."""
    lines = ["", "ops against each peer, over all cells (ratios below 1: ops is faster)"]
    lines.append(f"{'':12}{'cells':>7}{'best':>8}{'median':>8}{'worst':>8}  worst cell")
    for peer in (*PEERS, FLOOR):
        ranked = sorted(_ratios(results, peer))
        if not ranked:
            continue
        worst = max(results, key=lambda r: r.ratio(peer) or 0.0)
        lines.append(
            f"{peer:12}{len(ranked):>7}{ranked[0]:>8.2f}{ranked[len(ranked) // 2]:>8.2f}"
            f"{ranked[-1]:>8.2f}  {worst.name} {worst.dtype} {worst.tokens}"
        )
    lines.extend(_wrap(line, 6) for line in (*_slower(results), *_absent(results)))
    return "\n".join(lines)


def _slower(results: Sequence[Result]) -> Iterator[str]:
    found = [(r, hits) for r in results if (hits := r.slower(NOISE))]
    yield ""
    yield (
        f"cells slower than a peer by more than {NOISE - 1:.0%}, after measuring again: "
        f"{len(found) or 'none'}"
    )
    if found:
        yield "(ratio of the fastest samples, then the median of ratios in the same round)"
    for r, hits in found:
        by_ops = {peer for ours, peer, _, _ in hits if ours == "ops"}
        shown = [
            f"{'layer/' if ours == 'layer' else ''}{peer} {ratio:.2f} {median:.2f}"
            for ours, peer, ratio, median in hits
            if ours == "ops" or peer not in by_ops
        ]
        yield f"  {r.name} {r.dtype} {r.tokens}: {r.us[hits[0][0]]:.1f} us; {', '.join(shown)}"


def _absent(results: Sequence[Result]) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for r in results:
        for label, reason in r.missing.items():
            reasons.setdefault((label, reason), []).append(f"{r.name} {r.dtype} {r.tokens}")
    if reasons:
        yield ""
        yield "contenders left out"
    for (label, reason), cells in reasons.items():
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        yield f"  {label}: {reason} ({cells[0]}{more})"


def as_json(results: Sequence[Result], arguments: Sequence[str]) -> str:
    about = {
        "machine": machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "date": time.strftime("%Y-%m-%d"),
        "arguments": list(arguments),
        "cells": [result.as_json() for result in results],
    }
    return json.dumps(about, indent=1) + "\n"


class Progress:
    """One line on stderr: rewritten on a terminal, one plain line for each operator elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.start = time.monotonic()
        self.live = sys.stderr.isatty()
        self.last = ""

    def step(self, name: str, cell: str) -> None:
        spent = time.monotonic() - self.start
        left = ""
        if self.done:
            left = f", {spent / self.done * (self.total - self.done) / 60:.0f} min left"
        text = f"[{self.done + 1}/{self.total}] {name}"
        if self.live:
            line = f"{text} {cell}{left}"
            print(f"\r{line[:79]:79}", end="", file=sys.stderr, flush=True)
        elif name != self.last:
            print(f"{text}{left}", file=sys.stderr, flush=True)
        self.last = name
        self.done += 1

    def clear(self) -> None:
        if self.live:
            print(f"\r{'':79}\r", end="", file=sys.stderr, flush=True)
