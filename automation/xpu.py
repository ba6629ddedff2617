# SPDX-License-Identifier: Apache-2.0
"""The sessions of the XPU package. No GPU is needed: the kernels run on the SYCL CPU device, and
Intel's offline compiler takes their SPIR-V."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable

import nox

from . import Environment, skip_unless

# benchmarks/sycl_cpu_device.py names them as well, for its messages.
WHEELS = ("intel-sycl-rt>=2026.0,<2027", "intel-opencl-rt>=2026.0,<2027")
OFFLINE = {"ocloc": "intel-opencl-icd", "spirv-dis": "spirv-tools"}


def test(session: nox.Session, prepare: Callable[[], Environment], evidence: str) -> None:
    """The package over the SYCL CPU device, and its SPIR-V.

    ``VLLM_OPS_REQUIRE`` knows ``xpu`` for the session and ``ocloc`` for the offline compiler alone.
    """
    machine = platform.machine()
    skip_unless(
        session,
        machine == "x86_64",
        "xpu",
        f"Intel's wheels exist for x86-64 only, and this is {machine}",
    )
    environment = prepare()
    environment.install(*WHEELS)
    environment.install_project("xpu")
    absent = [f"{tool} (Debian's {p})" for tool, p in OFFLINE.items() if not shutil.which(tool)]
    without = ["--ignore=tests/xpu/test_xpu_spirv.py"] if absent else []
    try:
        environment.pytest("tests/xpu", f"--evidence={evidence}", *without, *session.posargs)
    finally:
        environment.uninstall_project("xpu")
        environment.remove("intel-sycl-rt", "intel-opencl-rt")
    missing = f"{' and '.join(absent)} not found: run on the SYCL CPU device, not compiled for GPUs"
    skip_unless(session, not absent, "ocloc", missing)
