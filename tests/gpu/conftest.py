# SPDX-License-Identifier: Apache-2.0
"""The tests of the cuda and rocm packages.

``VLLM_OPS_GPU_PACKAGE`` names the package. Its sources are compiled for the emulator and registered
as the CPU kernels of this process, so these tests share no process with others. What looks into the
built libraries takes the installed package.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "simt"))

import emulated_library as simt  # noqa: E402
from vllm_ops.shared import evidence, gpu_package  # noqa: E402
from vllm_ops.shared.ops import native_fallback  # noqa: E402

PACKAGE = os.environ.get("VLLM_OPS_GPU_PACKAGE", "")
FORWARD, BACKWARD, RANDOM = 0, 1, 2
NO_LIMIT = 2**31 - 1

Configure = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-evidence", metavar="FILE", help="write what a passing run has shown")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if PACKAGE not in ("cuda", "rocm"):
        reason = "set VLLM_OPS_GPU_PACKAGE to cuda or rocm, as the nox sessions do"
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The operators whose whole case table was emulated are ``emulated``, if nothing failed."""
    path = session.config.getoption("--record-evidence")
    shown = getattr(session.config, "emulated_ops", set())
    if path and exitstatus == 0 and shown:
        evidence.record(Path(path), PACKAGE, dict.fromkeys(sorted(shown), "emulated"))


@pytest.fixture(scope="session")
def package() -> str:
    return PACKAGE


@pytest.fixture(scope="session")
def simt_folder(package: str) -> Path:
    """Where emulated libraries are kept from run to run; they are named by their sources."""
    return ROOT / "build" / "simt" / package


@pytest.fixture(scope="session")
def emulated(package: str, simt_folder: Path) -> Configure:
    """The package's kernels as CPU kernels. Call with ``warp``, ``order`` and ``max_blocks``."""
    torch.set_num_threads(1)  # the emulator has one, and the tensors are small
    path = simt.build(package, simt_folder)
    torch.ops.load_library(str(path))
    native_fallback.provide(gpu_package.OPS)
    function = ctypes.CDLL(str(path)).vllm_ops_simt_configure
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64]

    def configure(warp: int = 32, order: int = FORWARD, max_blocks: int = NO_LIMIT) -> None:
        function(warp, order, max_blocks)

    configure()
    return configure


@pytest.fixture
def configure(emulated: Configure) -> Configure:
    emulated()
    return emulated
