# SPDX-License-Identifier: Apache-2.0
"""Which path every operator takes, and why."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from .custom_op import CustomOp


@dataclass(frozen=True)
class Row:
    """One operator of a model: where it is, what it runs, and why."""

    path: str
    op: str
    method: str
    device: str
    version: str
    reason: str


class Explanation(list[Row]):
    """The rows, printed as a table."""

    def __str__(self) -> str:
        head = ("path", "op", "method", "device", "reason")
        body = [(r.path or ".", r.op, r.method, r.device, r.reason) for r in self]
        widths = [max(len(line[i]) for line in (head, *body)) for i in range(len(head))]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in (head, *body)
        )


def explain(module: nn.Module) -> Explanation:
    """One row for every CustomOp in ``module``, itself included."""
    return Explanation(
        Row(
            path,
            m.name,
            m.decision.method,
            m.decision.device,
            m.decision.version,
            m.decision.reason,
        )
        for path, m in module.named_modules()
        if isinstance(m, CustomOp)
    )
