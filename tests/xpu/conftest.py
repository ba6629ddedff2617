# SPDX-License-Identifier: Apache-2.0
"""The XPU package in a process of its own, in which the SYCL CPU device stands in for a GPU.

The library is the one that a user installs; its kernels are registered under the CPU key, compiled
by the same run-time compiler from the same sources, and work on the memory of CPU tensors.
"""

import os
import tempfile
from pathlib import Path

import pytest
import sycl_cpu_device
import torch
import vllm_ops.xpu
from vllm_ops.shared import backends, evidence

ROOT = Path(__file__).resolve().parents[2]
ICD = ROOT / "build" / "xpu" / "icd"

_outcomes = {"failed": 0, "conforming": []}


def pytest_addoption(parser):
    parser.addoption("--evidence", type=Path, help="record what a passing run has shown here")
    parser.addoption("--kept", type=Path, help="a folder to keep compiled kernels in, to save time")


def pytest_configure(config):
    if sycl_cpu_device.driver() is None:
        wheels = " ".join(map(repr, sycl_cpu_device.WHEELS))
        raise pytest.UsageError(f"tests/xpu needs the SYCL CPU device: pip install {wheels}")
    # Without --kept every run compiles, and takes nothing that an earlier one left for its work.
    config.xpu_cache = tempfile.TemporaryDirectory(prefix="vllm-ops-xpu-")
    os.environ["VLLM_OPS_XPU_CACHE"] = str(config.getoption("--kept") or config.xpu_cache.name)
    sycl_cpu_device.stand_in(ICD)
    torch.set_num_threads(1)
    found = backends.probe("xpu")
    if not found.usable:
        raise pytest.UsageError(f"the package cannot be loaded: {found.reason}")


def pytest_unconfigure(config):
    cache = getattr(config, "xpu_cache", None)
    if cache is not None:
        cache.cleanup()


@pytest.fixture(scope="session")
def kernels():
    """Every unit, compiled; and the folder in which their SPIR-V is kept."""
    units = vllm_ops.xpu.warmup()
    return units, Path(os.environ["VLLM_OPS_XPU_CACHE"])


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
    ops, provided = _outcomes["conforming"], vllm_ops.xpu.ops_provided()
    if _outcomes["failed"] or set(ops) != provided:
        print("\nevidence: not recorded, as not every operator was checked and passed")
        return
    evidence.record(path, "xpu", dict.fromkeys(ops, vllm_ops.xpu.evidence))
