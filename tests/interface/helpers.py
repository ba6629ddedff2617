# SPDX-License-Identifier: Apache-2.0
"""What the tests of the interface share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from vllm_ops.shared import backends
from vllm_ops.shared.ops import OPS

DEVICE_TYPES = {"rocm": "cuda", "tpu": "xla", "gaudi": "hpu"}


class FakeBackend:
    """Satisfies the protocol and registers nothing."""

    def __init__(self, name: str, ops: Iterable[str] = (), **attributes: Any) -> None:
        self.name = name
        self.device_type = DEVICE_TYPES.get(name, name)
        self.dispatch_key = "CPU"
        self.loads = 0
        self._ops = frozenset(ops)
        self.__dict__.update(attributes)

    def available(self) -> tuple[bool, str]:
        return True, f"{self.name} answers"

    def load(self) -> None:
        self.loads += 1

    def ops_provided(self) -> frozenset[str]:
        return self._ops

    def version(self) -> str:
        return "1.2.3"


class Machine:
    """Decides what ``backends`` finds, for one test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._installed: dict[str, Any] = {}
        monkeypatch.setattr(backends, "_probes", {})
        monkeypatch.setattr(backends, "_unusable_asked", set())
        monkeypatch.setattr(backends, "_entry_points", {})
        monkeypatch.setattr(backends, "_resolve", self._installed.get)

    def add(self, backend: Any, name: str | None = None) -> Any:
        """Install a backend that will be probed for real."""
        name = name or backend.name
        if name not in backends.KNOWN:
            backends.third_party()[name] = None  # type: ignore[assignment]
        self._installed[name] = backend
        backends._probes.pop(name, None)
        return backend

    def install(self, name: str, ops: Iterable[str] | None = None) -> None:
        """A usable backend, with kernels for every operator unless ``ops`` says which."""
        backend = self.add(FakeBackend(name))
        found = frozenset(OPS if ops is None else ops)
        backends._probes[name] = backends.Probe(
            name, True, True, f"{name} answers", backend, found, "1.2.3"
        )

    def remove(self, name: str) -> None:
        self._installed.pop(name, None)
        backends._probes.pop(name, None)


def run(code: str, *paths: str, timeout: float = 120, **env: str) -> str:
    """Run Python code in a process of its own and return what it printed.

    Args:
        paths: put on ``PYTHONPATH`` before what this process has there.
        env: variables to set; the settings of vllm_ops are unset unless given.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_OPS_")}
    search = [*paths, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in search if path)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment | env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)
