# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing on a machine that others may be using.

Contenders take turns in rounds, in a new order every round, so that whatever disturbs the machine
disturbs all of them; the figure of a contender is its fastest sample. A sample is as many calls as
fill ``SAMPLE_S``: long enough for the clock, short enough to fit between two disturbances.

A sample during which a thread had to wait for a core says nothing about the contender: on two
cores that others use as well, an operator that takes 10 us alone can take 8 ms in every call for
seconds. Such samples don't count, and a cell goes on until it has enough that do.
"""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

from .waiting import Waiting

FLOOR = "copy"
"""The label of the contender that is no peer."""

SAMPLE_S = 200e-6
MOST_CALLS = 200
FEWEST_ROUNDS = 9
MOST_ROUNDS = 1000

WAITED = 0.02
"""A sample counts if threads waited for a core for at most this part of it."""

ENOUGH = 6
"""Samples of each contender that should count."""

FEWEST = 3
"""With fewer that do, a contender has no figure."""

PATIENCE = 20
"""A cell without enough samples that count goes on for up to this many times its time."""

FAR_BEHIND = 3.0
"""A contender this many times slower than the fastest peer has enough with ``ENOUGH`` samples: the
time goes to those that are close."""

PAUSE_S = 0.01
"""Rest after a round that others disturbed."""


@dataclass
class Entry:
    """One contender in a cell: the function, its argument sets, and its samples.

    Attributes:
        calls: calls in a sample.
        samples: seconds a call; None where a thread waited for a core.
        any: the fastest sample of all, whether it counts or not.
    """

    label: str
    call: Callable[..., Any]
    sets: Sequence[tuple[Any, ...]]
    calls: int = 1
    samples: list[float | None] = field(default_factory=list)
    any: float = float("inf")

    @property
    def counted(self) -> int:
        return sum(sample is not None for sample in self.samples)

    @property
    def best(self) -> float | None:
        """The fastest sample that counts; None where too few do."""
        counting = [sample for sample in self.samples if sample is not None]
        return min(counting) if len(counting) >= FEWEST else None

    def sample(self, first: int, waiting: Waiting) -> bool:
        """Time ``calls`` calls that start with argument set ``first``; whether it counts."""
        call, sets, count = self.call, self.sets, len(self.sets)
        batch = [sets[(first + i) % count] for i in range(self.calls)]
        if self.calls > 1:
            call(*batch[-1])  # brings code and branch history back after the other contenders
        waited = waiting.seconds()
        start = perf_counter()
        for args in batch:
            call(*args)
        spent = perf_counter() - start
        counts = waiting.seconds() - waited <= WAITED * spent
        once = spent / self.calls
        self.samples.append(once if counts else None)
        self.any = min(self.any, once)
        return counts

    def fit_calls(self) -> None:
        """Take as many calls as fill a sample, by the fastest so far."""
        self.calls = max(1, min(MOST_CALLS, round(SAMPLE_S / self.any)))


def measure(entries: Sequence[Entry], budget_s: float, order: random.Random) -> None:
    """Add samples to every contender, one each in every round, until the time is used up."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with Waiting() as waiting:
            _rounds(list(enumerate(entries)), budget_s, order, waiting)
    finally:
        if collecting:
            gc.enable()


def _rounds(
    turns: list[tuple[int, Entry]], budget_s: float, order: random.Random, waiting: Waiting
) -> None:
    start = perf_counter()
    wanted = ENOUGH + min(entry.counted for _, entry in turns)
    for done in range(MOST_ROUNDS):
        order.shuffle(turns)
        quiet = True
        fastest = min(entry.any for _, entry in turns if entry.label != FLOOR)
        for place, entry in turns:
            if entry.counted >= wanted and entry.any > FAR_BEHIND * fastest:
                entry.samples.append(None)
                continue
            # Each contender takes another set in a round, so none finds its inputs in the cache
            # because the one before it has just read them.
            quiet &= entry.sample(done * len(turns) + place, waiting)
            entry.fit_calls()
        if not quiet:
            sleep(PAUSE_S)
        spent = perf_counter() - start
        if done + 1 < FEWEST_ROUNDS or spent < budget_s:
            continue
        if spent > PATIENCE * budget_s or all(e.counted >= wanted for _, e in turns):
            return


def paired(ours: Entry, theirs: Entry) -> float:
    """The median over rounds of ours against theirs in the same round; NaN without any."""
    pairs = zip(ours.samples, theirs.samples, strict=True)
    ratios = [a / b for a, b in pairs if a is not None and b is not None]
    return statistics.median(ratios) if ratios else float("nan")
