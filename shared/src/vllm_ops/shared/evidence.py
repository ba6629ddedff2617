# SPDX-License-Identifier: Apache-2.0
"""What is shown about each operator on each device: measured by a run, never typed in.

A backend that is usable here speaks for itself. For the others there is ``evidence.json`` beside
this file, written by the test runs of the device packages through :func:`record`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from . import backends
from .ops import OPS

__all__ = ["FILE", "LEVELS", "MEANINGS", "Table", "level_here", "packaged", "record", "table"]

MEANINGS = {
    "device": "the kernel ran on the hardware",
    "emulated": "the kernel's own source ran, not on the hardware",
    "compiled": "the kernel was built for the hardware and did not run",
    "native": "no kernel, the reference in plain torch runs",
}
LEVELS = tuple(MEANINGS)
FILE = "evidence.json"

Table = dict[str, dict[str, str]]
"""Level by backend and operator."""


def _check(backend: str, levels: Mapping[str, str]) -> None:
    for op, level in levels.items():
        if op not in OPS or level not in LEVELS:
            raise ValueError(f"evidence: {backend}: {op!r}: {level!r} names no operator or level")


def packaged() -> Table:
    """What the installed files say.

    Raises:
        ValueError: a file names an unknown operator or level.
    """
    path = resources.files(__package__) / FILE
    table: Table = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    for backend, levels in table.items():
        _check(backend, levels)
    return table


def record(path: Path, backend: str, levels: Mapping[str, str]) -> None:
    """Write what a run has shown about ``backend`` into the file at ``path``, in the place of what
    the file said about it.

    Raises:
        ValueError: an unknown operator or level.
    """
    _check(backend, levels)
    table = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    table[backend] = dict(sorted(levels.items()))
    path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", "utf-8")


def level_here(probe: backends.Probe) -> str:
    """The level of what runs through a usable backend."""
    level: str = getattr(probe.backend, "evidence", "device")
    return level


def table() -> Table:
    """Every operator on every backend; loads the backends that can be used here."""
    known = packaged()
    result: Table = {}
    for name in backends.names():
        probe = backends.probe(name)
        if probe.usable:
            levels = dict.fromkeys(probe.ops, level_here(probe))
        else:
            levels = known.get(name, {})
        result[name] = {op: levels.get(op, "native") for op in OPS}
    return result
