# SPDX-License-Identifier: Apache-2.0
"""What the sessions of the noxfile share: one environment, the builds, the reasons for a skip.

Every session runs in one virtual environment, ``.nox/main``: an environment of its own would cost
each of them another torch of 700 MB. It belongs to nox alone, is made on first use, and may be
removed at any time. A session whose dependencies exclude those of the others makes an
:class:`Environment` under another name.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import ClassVar

import nox

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"
BUILD = ("scikit-build-core>=1.0.1", "cmake>=3.24", "ninja")
LINT = ("ruff==0.17.6", "mypy==2.4.1", "clang-format==23.1.5")
# transformers renames arguments of its attention modules between releases; 5.24 is the newest that
# the tests ran with.
TRANSFORMERS = "transformers>=5.18,<5.25"
TEST = ("pytest>=8", "hypothesis>=6", "numpy", TRANSFORMERS)
"""Without transformers the oracle tests would be skipped."""
MODEL = (TRANSFORMERS, "accelerate>=1.10", "gguf>=0.17", "safetensors", "tqdm")
REQUIRE = "VLLM_OPS_REQUIRE"


def skip_unless(session: nox.Session, present: object, name: str, missing: str) -> None:
    """Skip the session with a reason, or fail where ``VLLM_OPS_REQUIRE`` lists ``name``."""
    if present:
        return
    required = os.environ.get(REQUIRE, "").replace(",", " ").split()
    if name in required:
        session.error(f"{REQUIRE} lists {name}, but {missing}")
    session.skip(missing)


class Environment:
    """A virtual environment under ``.nox`` that several sessions share."""

    _installed: ClassVar[dict[str, set[str]]] = {}

    def __init__(
        self,
        session: nox.Session,
        name: str = "main",
        *,
        torch: str = TORCH,
        python: str = sys.executable,
    ) -> None:
        self.session = session
        self.name = name
        self.torch = torch
        self.path = Path(session.cache_dir).resolve().parent / name
        self.bin = self.path / ("Scripts" if os.name == "nt" else "bin")
        self.python = str(self.bin / "python")
        if not self._usable(python):
            shutil.rmtree(self.path, ignore_errors=True)
            session.run(python, "-m", "venv", str(self.path), external=True)

    def _usable(self, python: str) -> bool:
        """Whether the environment exists and has that Python."""
        if not Path(self.python).exists():
            return False
        ask = (python, "-c", "import platform; print(platform.python_version())")
        version = self.session.run(*ask, external=True, silent=True)
        return str(version).strip() in (self.path / "pyvenv.cfg").read_text()

    def run(self, *command: str, **kwargs: object) -> object:
        """Run a program of the environment, or ``python`` with arguments."""
        program = self.python if command[0] == "python" else str(self.bin / command[0])
        return self.session.run(program, *command[1:], external=True, **kwargs)

    def install(self, *requirements: str) -> None:
        """``pip install``, once in a run of nox."""
        done = self._installed.setdefault(self.name, set())
        wanted = [word for word in requirements if word not in done]
        if any(not word.startswith("-") for word in wanted):
            self.run("python", "-m", "pip", "install", "-q", *wanted)
            done.update(word for word in wanted if not word.startswith("-"))

    def install_project(self, *names: str) -> None:
        """Build and install distributions of this repository: ``shared``, ``cpu``, ...

        Builds are incremental (``.nox/build/<name>``), and see the torch of the environment:
        an isolated build would fetch a CUDA torch of several gigabytes.
        """
        self.install(self.torch, *BUILD)
        done = self._installed.setdefault(self.name, set())
        for name in names:
            if name in done:
                continue
            folder = ROOT / "shared" if name == "shared" else ROOT / "packages" / name
            build = self.path.parent / "build" / f"{self.name}-{name}"
            self.run(
                *("python", "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"),
                *("--force-reinstall", f"--config-settings=build-dir={build}", str(folder)),
                env={"CMAKE_GENERATOR": "Ninja"},
            )
            done.add(name)

    def uninstall_project(self, *names: str) -> None:
        """Remove device packages that an earlier session installed."""
        self.run("python", "-m", "pip", "uninstall", "-q", "-y", *(f"vllm-ops-{n}" for n in names))
        self._installed.get(self.name, set()).difference_update(names)

    def remove(self, *distributions: str) -> None:
        """``pip uninstall``, so that the next ``install`` of them installs them again."""
        self.run("python", "-m", "pip", "uninstall", "-q", "-y", *distributions)
        done = self._installed.get(self.name, set())
        done.difference_update([r for r in done if r.startswith(distributions)])

    def pytest(self, *args: str, **env: str) -> None:
        """Run pytest; no test collected is a failure (exit status 5)."""
        self.run("python", "-m", "pytest", *args, env=env)


def compiler() -> str | None:
    """The C++ compiler that CMake would take."""
    return os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
