# SPDX-License-Identifier: Apache-2.0
"""The small cases once more with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess

import pytest

from .conftest import simt
from .test_faults import _run


def _runtime(name: str) -> str:
    done = subprocess.run(
        ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_sanitizers(package, simt_folder):
    if package != "cuda":
        pytest.skip("the kernels are the same: once, in the session of cuda, is enough")
    library = simt.build(package, simt_folder / "sanitized", flags=simt.SANITIZE)
    preload = " ".join(_runtime(name) for name in ("libasan.so", "libubsan.so"))
    env = {**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"}
    status, output = _run(library, "every_small_case", env=env)
    assert status == 0, output
    assert " calls" in output
    assert "runtime error" not in output
