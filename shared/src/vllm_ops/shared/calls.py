# SPDX-License-Identifier: Apache-2.0
"""Counting calls: which implementation ran?"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from . import _lean_call
from .custom_op import CustomOp
from .ops import NAMESPACE

__all__ = ["CallCounts", "count_calls", "has_kernel", "implementation"]


def has_kernel(op: str, device_type: str) -> bool:
    """Whether the dispatcher holds a kernel of its own for ``op`` and a torch device type."""
    key = torch._C._dispatch_key_for_device(device_type)
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"{NAMESPACE}::{op}", key)


def implementation(module: CustomOp, device_type: str | None) -> str:
    """What a call of ``module`` with tensors of that device type runs: ``native``,
    ``cpu kernel``, ``forward_cuda``, ...; ``meta`` where nothing is computed."""
    decision = module.decision
    if decision.native:
        return decision.method.removeprefix("forward_")
    if decision.method != "forward_kernel":
        return decision.method
    if device_type == "meta":
        return "meta"
    if device_type is None or not all(has_kernel(op, device_type) for op in module.ops):
        return "native"
    return f"{device_type} kernel"


class CallCounts:
    """How often each module ran, and what it ran. Made by :func:`count_calls`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._modules: weakref.WeakKeyDictionary[CustomOp, Counter[str]] = (
            weakref.WeakKeyDictionary()
        )
        self._operators: Counter[tuple[str, str]] = Counter()

    def _observe(self, module: CustomOp, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        given = (*args, *kwargs.values())
        tensor = next((value for value in given if isinstance(value, Tensor)), None)
        ran = implementation(module, None if tensor is None else tensor.device.type)
        with self._lock:
            self._modules.setdefault(module, Counter())[ran] += 1
            self._operators[module.name or type(module).__name__, ran] += 1

    def of(self, module: CustomOp) -> dict[str, int]:
        """The calls of one module, by implementation."""
        return dict(self._modules.get(module, ()))

    def by_implementation(self) -> dict[tuple[str, str], int]:
        """All calls, by operator name and implementation."""
        return dict(self._operators)

    def total(self) -> int:
        return sum(self._operators.values())

    def __str__(self) -> str:
        lines = [f"{count} x {op}: {ran}" for (op, ran), count in sorted(self._operators.items())]
        return "\n".join(lines) or "no calls"


@contextmanager
def count_calls() -> Iterator[CallCounts]:
    """Count the eager calls of every CustomOp in this process, from all threads, in this block.

    ``explain(model, calls)`` shows them by path. A compiled or exported graph holds operators and
    no modules, so what runs inside of one is not counted, nor is it slowed down or compiled again.
    Calls of the functional API have no module, and are not counted either.
    """
    counts = CallCounts()
    _lean_call.observers.append(counts._observe)
    try:
        yield counts
    finally:
        _lean_call.observers.remove(counts._observe)
