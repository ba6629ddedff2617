# SPDX-License-Identifier: Apache-2.0
"""The conformance kit: everything that the contract asks of a backend, in one call.

``run_conformance("toy")``, or ``vllm-ops parity toy``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import _table, backends
from ..ops import OPS, Op
from . import accuracy, accuracy_subjects, checks
from .cases import DTYPES, Device, cases
from .parity import check_parity


@dataclass(frozen=True)
class Failure:
    """One check that an operator did not pass."""

    op: str
    check: str
    message: str


@dataclass
class Report:
    """The outcome of a run.

    Attributes:
        backend: its name.
        version: its version.
        ops: the operators that were checked.
        passed: how many checks passed, by operator and kind.
        failures: those that did not.
    """

    backend: str
    version: str
    ops: tuple[str, ...]
    passed: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.ops) and not self.failures

    def as_dict(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "version": self.version,
            "ok": self.ok,
            "ops": {
                op: {kind: count for (name, kind), count in self.passed.items() if name == op}
                for op in self.ops
            },
            "failures": [vars(failure) for failure in self.failures],
        }

    def table(self, width: int | None = None) -> str:
        kinds = list(dict.fromkeys(kind for _, kind in self.passed))
        body = []
        for op in self.ops:
            failed = sum(failure.op == op for failure in self.failures)
            counts = [str(self.passed[op, kind] or "-") for kind in kinds]
            body.append([op, *counts, str(failed) if failed else "-"])
        text = _table.render(["op", *kinds, "failed"], body, width)
        verdict = "conforms" if self.ok else "does not conform"
        text = f"{self.backend} {self.version}: checks passed\n\n{text}\n\n"
        for failure in self.failures:
            text += f"{failure.op}, {failure.check}: {failure.message}\n"
        return text + f"{self.backend} {verdict}."

    def raise_if_failed(self) -> None:
        """Raise AssertionError with the table unless everything passed."""
        if not self.ok:
            raise AssertionError(self.table())


def checks_of(
    op: Op, device: Device, dtypes: Iterable[torch.dtype] = DTYPES
) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Every check of one operator: its kind, its id, and the function that raises."""
    dtypes = tuple(dtypes)
    for case in cases(op.name):
        for dtype in dtypes:
            yield "parity", f"{case} {dtype}", _bind(check_parity, case, dtype, device)
    for case in checks.sliceable(op):
        for dtype in set(dtypes).intersection(checks.invariant_dtypes(op)):
            check = _bind(checks.check_batch_invariance, case, dtype, device)
            yield "rows", f"{case} {dtype}", check
    if op.in_place:
        for case in checks.cases_of(op):
            for dtype in dtypes:
                check = _bind(checks.check_in_place, op, case, dtype, device)
                yield "in place", f"{case} {dtype}", check
        yield "in place", "overlap", _bind(checks.check_overlap, op, device)
        if "residual" in checks.argument_names(op):
            yield "in place", "shared memory", _bind(checks.check_shared_memory, op, device)
    else:
        yield "gradient", "", _bind(checks.check_gradient, op, device)
    if op.name == accuracy_subjects.LINEAR.op:
        # Parity leaves room for sums whose terms cancel; this does not.
        for dtype in set(dtypes).intersection(checks.HALF):
            check = _bind(
                accuracy.check_accuracy, accuracy_subjects.LINEAR, "normal", dtype, device
            )
            yield "fp64", f"{dtype}", check
    yield "errors", "", _bind(checks.check_errors, op, device)
    yield "opcheck", "", _bind(checks.check_opcheck, op, device)


def _bind(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: function(*args)


def run_conformance(
    backend: str, *, ops: Iterable[str] | None = None, dtypes: Iterable[torch.dtype] = DTYPES
) -> Report:
    """Hold a backend against the contract, on the device that it names.

    Args:
        backend: its name; it is loaded if it isn't yet.
        ops: some of the operators that it provides; all by default.
        dtypes: to run the case table in.

    Raises:
        RuntimeError: the backend cannot be used here; the message says why.
        ValueError: no backend has that name, or it does not provide one of ``ops``.
    """
    probe = backends.probe(backend)
    if probe.backend is None or not probe.usable:
        raise RuntimeError(f"parity: {backend} cannot be used here: {probe.reason}")
    wanted = tuple(probe.ops) if ops is None else tuple(ops)
    for op in wanted:
        if op not in probe.ops:
            raise ValueError(f"parity: {backend} has no kernel for {op!r}")
    report = Report(backend, probe.version, tuple(op for op in OPS if op in wanted))
    for name in report.ops:
        for kind, what, check in checks_of(OPS[name], probe.backend.device_type, dtypes):
            try:
                check()
            except Exception as error:
                told = str(error) if isinstance(error, AssertionError) else repr(error)
                # torch.testing's messages have several lines, and name their case already.
                told = " ".join(told.removeprefix(what).removeprefix(":").split())
                report.failures.append(Failure(name, kind, f"{what}: {told}"))
            else:
                report.passed[name, kind] += 1
    return report
