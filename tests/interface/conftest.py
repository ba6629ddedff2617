# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a clean environment, and a machine whose device packages the test decides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from vllm_ops.shared import policy

from .helpers import Machine


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (policy.ENV_CUSTOM_OPS, policy.ENV_DEVICE, policy.ENV_STRICT):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without any device package; ``machine.install("cpu")`` adds one."""
    return Machine(monkeypatch)


@pytest.fixture
def cpu(machine: Machine) -> Machine:
    """A machine with the CPU package. The dispatcher runs what is registered: the real kernels
    where the package is really there, the references elsewhere."""
    machine.install("cpu")
    return machine


@pytest.fixture(scope="session")
def toy_site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory for ``PYTHONPATH`` that the toy backend's distribution is installed in."""
    site = tmp_path_factory.mktemp("site")
    source = Path(__file__).parents[1] / "toy_backend"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    options = ["--no-build-isolation", "--disable-pip-version-check", "--target", str(site)]
    subprocess.run([*pip, *options, str(source)], check=True, timeout=300)
    return str(site)
