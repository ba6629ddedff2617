# SPDX-License-Identifier: Apache-2.0
"""Which path every operator takes, and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from . import _table, backends, policy
from .calls import CallCounts, has_kernel, implementation
from .custom_op import CustomOp
from .ops import OPS, Op

__all__ = ["Explanation", "Row", "explain"]


@dataclass(frozen=True)
class Row:
    """One operator: where it is, what it runs, and why.

    Attributes:
        path: of the module inside the model; empty for the model itself, and for an operator.
        op: the registered name.
        method: the forward method that was chosen; for an operator, ``kernel`` or ``native``.
        device: the backend that the choice was made for.
        version: the version of that backend.
        reason: one sentence.
        lost: a kernel was wanted, and the reference runs.
        calls: how often, and what ran, where calls were counted.
    """

    path: str
    op: str
    method: str
    device: str
    version: str
    reason: str
    lost: bool = False
    calls: tuple[tuple[str, int], ...] | None = None


class Explanation(list[Row]):
    """The rows, printed as a table."""

    @property
    def lost(self) -> list[Row]:
        """The rows whose kernel was wanted and is missing."""
        return [row for row in self if row.lost]

    def table(self, width: int | None = None) -> str:
        """The rows as text of ``width`` characters, that of the terminal by default."""
        head = ["path", "op", "method", "device", "reason"]
        counted = any(row.calls is not None for row in self)
        if counted:
            head.insert(4, "calls")
        body = []
        for row in self:
            line = [row.path or ".", row.op, row.method, f"{row.device} {row.version}".strip()]
            if counted:
                line.append(", ".join(f"{n} {ran}" for ran, n in row.calls or ()) or "0")
            body.append([*line, ("LOST: " if row.lost else "") + row.reason])
        text = _table.render(head, body, width)
        if self.lost:
            text += f"\n{len(self.lost)} of {len(self)} wanted a kernel and run native."
        return text

    def __str__(self) -> str:
        return self.table()


def explain(what: Any, calls: CallCounts | None = None) -> Explanation:
    """What runs, and why.

    Args:
        what: a model, for a row per CustomOp in it, itself included; or an operator (its name, its
        function in ``functional``, ``torch.ops.vllm_ops.<name>``), for a row per loaded backend.
        calls: what :func:`count_calls` gave, to show the calls of each module.

    Raises:
        TypeError: ``what`` is neither.
        ValueError: no operator has that name.
    """
    if isinstance(what, nn.Module):
        return Explanation(
            _module_row(path, module, calls)
            for path, module in what.named_modules()
            if isinstance(module, CustomOp)
        )
    return _explain_op(_operator(what))


def _module_row(path: str, module: CustomOp, calls: CallCounts | None) -> Row:
    decision = module.decision
    reason, lost = decision.reason, decision.lost
    tensor = next(itertools.chain(module._parameters.values(), module._buffers.values()), None)
    if tensor is not None and not decision.native:
        place = tensor.device.type
        if place != "meta" and implementation(module, place) == "native":
            reason, lost = f"its tensors are on {place}, which has no kernel loaded", True
    if not decision.native and not lost:
        reason = _with_limits(reason, decision.device, module.ops)
    if "forward" in vars(module):
        reason, lost = "forward is replaced on this instance", True
    return Row(
        path,
        module.name or type(module).__name__,
        decision.method,
        decision.device,
        decision.version,
        reason,
        lost,
        None if calls is None else tuple(sorted(calls.of(module).items())),
    )


def _with_limits(reason: str, device: str, ops: Iterable[str]) -> str:
    """The reason, and which calls the kernels of a loaded backend hand to the reference."""
    found = (backends.limits(device, op) for op in ops)
    return "; ".join(dict.fromkeys((reason, *(limit for limit in found if limit))))


def _operator(what: Any) -> Op:
    if isinstance(what, Op):
        return what
    name = what if isinstance(what, str) else getattr(what, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"explain: expected a module or an operator, got {type(what).__name__}")
    name = name.removesuffix(".default")
    if name not in OPS:
        raise ValueError(
            f"explain: unknown operator {name!r}{policy.suggest(name, OPS)} "
            f"Known operators: {', '.join(sorted(OPS))}"
        )
    return OPS[name]


def _explain_op(op: Op) -> Explanation:
    chosen = backends.choose()
    loaded = {probe.name: probe for probe in (chosen, *backends.probed()) if probe.usable}
    rows = Explanation()
    for name, probe in loaded.items():
        if probe.backend is None:
            continue
        device_type = probe.backend.device_type
        kernel = has_kernel(op.name, device_type)
        reason = f"{device_type} tensors: " + (probe.reason if kernel else "no kernel")
        if kernel:
            reason = _with_limits(reason, name, [op.name])
        method = "kernel" if kernel else "native"
        rows.append(Row("", op.name, method, name, probe.version, reason, not kernel))
    others = "all other tensors" if rows else f"all tensors: {chosen.reason}"
    rows.append(Row("", op.name, "native", "any", "", others))
    return rows
