# SPDX-License-Identifier: Apache-2.0
"""The TPU package on torch-xla's CPU client: kernels run interpreted, the rest is as on a TPU."""

from pathlib import Path

import pytest
import torch_xla
import vllm_ops.tpu
from vllm_ops.shared import backends, evidence

_outcomes = {"failed": 0, "conforming": set()}


def pytest_addoption(parser):
    parser.addoption("--evidence", type=Path, help="record what a passing run has shown here")


def pytest_configure():
    found = backends.probe("tpu")
    if not found.usable:
        raise pytest.UsageError(f"the package cannot be loaded: {found.reason}")


@pytest.fixture
def device():
    return torch_xla.device()


def pytest_runtest_logreport(report):
    if report.failed:
        _outcomes["failed"] += 1
    for key, value in report.user_properties:
        if report.when == "call" and report.passed and key == "conforming":
            _outcomes["conforming"].add(value)


def pytest_sessionfinish(session):
    path = session.config.getoption("--evidence")
    if path is None or hasattr(session.config, "workerinput"):
        return
    ops, provided = _outcomes["conforming"], vllm_ops.tpu.ops_provided()
    if _outcomes["failed"] or ops != provided:
        print("\nevidence: not recorded, as not every operator was checked and passed")
        return
    evidence.record(path, "tpu", dict.fromkeys(ops, vllm_ops.tpu.evidence))
