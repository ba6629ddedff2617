# SPDX-License-Identifier: Apache-2.0
"""Python processes of their own that use the package."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

STAND_IN = f"""
import sys, pathlib, torch, vllm_ops.xpu
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import sycl_cpu_device
sycl_cpu_device.stand_in(pathlib.Path({str(ROOT / "build/xpu/icd")!r}))
from vllm_ops.shared import backends, functional
assert backends.probe("xpu").usable, backends.probe("xpu").reason
x = torch.arange(-64, 64, dtype=torch.float32).bfloat16().view(2, 64) / 8
"""
"""The SYCL CPU device in the place of a GPU, and an ``x`` to work on."""


def start(script, **env):
    """A process that has begun; its standard output and error are pipes."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("VLLM_OPS") and name != "OCL_ICD_VENDORS"
    }
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, "OMP_NUM_THREADS": "1", **env},
        cwd=tempfile.gettempdir(),
    )


def finish(process):
    """Exit status, standard output and error; a process that hangs fails the test."""
    try:
        out, err = process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


def run(script, **env):
    return finish(start(script, **env))
