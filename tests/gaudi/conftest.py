# SPDX-License-Identifier: Apache-2.0
"""The Gaudi package in a process of its own, in which CPU tensors stand in for those of an HPU.

``habana_frameworks`` is the stand-in of this folder, the kernels are registered under the CPU key,
and the TPC kernels' two libraries are those of the emulator. Everything between the call of an
operator and these stand-ins is the package's own code.
"""

import os
import sys
from pathlib import Path

import emulation
import pytest
import torch
import vllm_ops.gaudi
from vllm_ops.gaudi import _tpc
from vllm_ops.shared import backends, evidence

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "standin"))
os.environ["VLLM_OPS_DEVICE"] = "gaudi"
os.environ["GC_KERNEL_PATH"] = "libtpc_kernels.so"  # as an installation of Habana's would set it

_outcomes = {"failed": 0, "conforming": []}


def pytest_addoption(parser):
    parser.addoption("--evidence", type=Path, help="record what a passing run has shown here")


def pytest_configure(config):
    if emulation.compiler() is None:
        raise pytest.UsageError("tests/gaudi needs clang++ for the emulator of the TPC kernels")
    folder = Path(os.environ.get("VLLM_OPS_GAUDI_EMULATOR", HERE.parents[1] / "build/gaudi"))
    emulation.build(folder)
    _tpc.folder = lambda: folder
    vllm_ops.gaudi.device_type = "cpu"
    vllm_ops.gaudi.dispatch_key = "CPU"
    torch.set_num_threads(1)
    # Now, as the package wants to be first to import habana_frameworks.
    found = backends.probe("gaudi")
    if not found.usable:
        raise pytest.UsageError(f"the package cannot be loaded over the stand-in: {found.reason}")
    config.gaudi_emulator_folder = folder


@pytest.fixture(scope="session")
def emulator(request):
    """The emulator, with the package loaded onto it."""
    assert vllm_ops.gaudi.info() == {"tpc": "loaded"}
    return emulation.Emulator(request.config.gaudi_emulator_folder)


def pytest_runtest_logreport(report):
    if report.failed:
        _outcomes["failed"] += 1
    for key, value in report.user_properties:
        if report.when == "call" and report.passed and key == "conforming":
            _outcomes["conforming"].append(value)


def pytest_sessionfinish(session):
    path = session.config.getoption("--evidence")
    if path is None:
        return
    ops, provided = _outcomes["conforming"], vllm_ops.gaudi.ops_provided()
    if _outcomes["failed"] or set(ops) != provided:
        print("\nevidence: not recorded, as not every operator was checked and passed")
        return
    evidence.record(path, "gaudi", dict.fromkeys(ops, vllm_ops.gaudi.evidence))
