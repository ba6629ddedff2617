# SPDX-License-Identifier: Apache-2.0
"""Faults put into a copy of the kernels, each of which the emulator must report."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import ROOT, simt

RUN = ROOT / "tests" / "simt" / "run_calls.py"


@dataclass(frozen=True)
class Fault:
    """``before`` becomes ``after`` at its ``nth`` occurrence in ``file``.

    ``sources`` are recompiled, ``call`` of run_calls.py is made, and the emulator's report must
    contain one of ``report``.
    """

    name: str
    file: str
    before: str
    after: str
    sources: frozenset[str]
    call: str
    report: tuple[str, ...]
    nth: int = 0


NORM, ROTARY = frozenset({"norm"}), frozenset({"rotary"})

FAULTS = (
    Fault(
        "no barrier before the partial sums are read",
        *("gpu/reduce.h", "sync_block();", ";"),
        *(NORM, "reduction", ("race", "nobody wrote")),
    ),
    Fault(
        "no barrier before the partial sums are written again",
        *("gpu/reduce.h", "sync_block();", ";"),
        *(NORM, "reduction", ("race",)),
        nth=1,
    ),
    Fault(
        "a barrier that only some threads reach",
        *("gpu/reduce.h", "sync_block();", "if (thread != 0) sync_block();"),
        *(NORM, "reduction", ("divergence",)),
        nth=1,
    ),
    Fault(
        "no barrier between the norm and the rotation",
        *("gpu/qk_norm_rope.h", "sync_block();", ";"),
        *(ROTARY, "heads", ("race", "nobody wrote")),
    ),
    Fault(
        "a store one element too far",
        *("gpu/memory.h", "store1(row + begin + i, narrow", "store1(row + begin + i + 1, narrow"),
        *(NORM, "odd_row", ("store to 4 bytes outside",)),
    ),
    Fault(
        "a load one element too far",
        *("gpu/memory.h", "i < left ? widen", "i <= left ? widen"),
        *(NORM, "odd_row", ("load of 4 bytes outside",)),
    ),
    Fault(
        "vectors whatever the alignment",
        *("gpu/binding/call.h", "reinterpret_cast<uintptr_t>(p) % 16 == 0", "p != nullptr"),
        *(frozenset({"layernorm"}), "unaligned", ("misaligned vector access",)),
    ),
    Fault(
        "offsets of 32 bits",
        *("gpu/memory.h", "return row * rows.stride[0];", "return int32_t(row * rows.stride[0]);"),
        *(NORM, "far_rows", ("outside the tensors",)),
    ),
)


def _run(library: Path, *calls: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(RUN), str(library), *calls],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    return done.returncode, done.stdout + done.stderr


def test_without_a_fault(package, simt_folder):
    calls = sorted({fault.call for fault in FAULTS})
    assert _run(simt.build(package, simt_folder), *calls) == (0, "")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault, package, simt_folder, tmp_path):
    csrc = tmp_path / "csrc"
    shutil.copytree(simt.CSRC, csrc)
    path = csrc / fault.file
    parts = path.read_text().split(fault.before)
    assert len(parts) > fault.nth + 1, f"{fault.before!r} is no longer in {fault.file}"
    cut = fault.nth + 1
    path.write_text(fault.before.join(parts[:cut]) + fault.after + fault.before.join(parts[cut:]))
    library = simt.build(package, simt_folder, changed=simt.Changed(csrc, fault.sources))
    status, output = _run(library, fault.call)
    assert status == 3, output
    assert "simt: " in output
    assert any(report in output for report in fault.report), output
