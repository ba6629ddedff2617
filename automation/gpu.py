# SPDX-License-Identifier: Apache-2.0
"""The sessions of the GPU packages. No GPU is needed: the kernels are emulated, and what the
compilers made of them is read from the objects. With a GPU the same cases run on it as well."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import nox

from . import Environment, skip_unless

# The disassemblers, and a clang that knows gfx950.
TOOLS = {
    "cuda": ("nvidia-cuda-cuobjdump>=13", "nvidia-cuda-nvdisasm>=13"),
    "rocm": ("ziglang==0.17.0",),
}
# What makes a compiler of PyPI's wheels: 100 MB. Their versions have to fit each other.
NVCC = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
)
NO_COMPILER = {
    "cuda": "no CUDA compiler was found (nvcc >= 13.0), and PyPI's is for Linux",
    "rocm": "no HIP compiler was found (ROCm, or Debian's clang-19 clang-tools-19 llvm-19 lld-19 "
    "libclang-rt-19-dev libamdhip64-dev rocm-device-libs)",
}
LARGEST = {"cuda": 5_000_000}
"""Bytes of a wheel."""


def compiler(name: str) -> str | None:
    """The compiler that CMake would take for ``cuda`` or ``rocm``."""
    if name == "cuda":
        return os.environ.get("CUDACXX") or shutil.which("nvcc")
    if os.environ.get("HIPCXX") or Path("/opt/rocm").exists():
        return os.environ.get("HIPCXX", "/opt/rocm")
    has_runtime = Path("/usr/include/hip/hip_runtime.h").exists()
    return shutil.which("clang++-19") if has_runtime else None


def toolchain(environment: Environment, name: str) -> dict[str, str]:
    """The variables that a build needs. Where there is no nvcc, PyPI's is installed."""
    variables = {"CMAKE_GENERATOR": "Ninja"}
    if name == "cuda" and not compiler("cuda"):
        environment.install(*NVCC)
        toolkit = next(environment.path.glob("lib/python*/site-packages/nvidia/cu13"))
        # nvcc looks for the runtime in lib64, which the wheels call lib.
        variables |= {"CUDACXX": str(toolkit / "bin/nvcc"), "LIBRARY_PATH": str(toolkit / "lib")}
    return variables


def wheel(
    session: nox.Session, environment: Environment, name: str, folder: Path, built: str | Path = ""
) -> Path:
    """Build the wheel of one distribution into ``folder``, and log its size and the time.

    ``built`` keeps what was compiled, for the next time.
    """
    variables = toolchain(environment, name)
    place = "shared" if name == "shared" else f"packages/{name}"
    settings = [f"--config-settings=build-dir={built}"] if built else []
    begin = time.monotonic()
    environment.run(
        *("python", "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", *settings),
        *("-w", str(folder), f"./{place}"),
        env=variables,
    )
    seconds = time.monotonic() - begin
    path = max(folder.glob(f"vllm_ops_{name}-*.whl"), key=lambda found: found.stat().st_mtime)
    size = path.stat().st_size
    session.log(f"{path.name}: {size / 1e6:.2f} MB, built in {seconds:.0f} s")
    if size > LARGEST.get(name, size):
        session.error(f"{path.name} has {size} bytes, more than {LARGEST[name]}")
    return path


def _skip_without_compiler(session: nox.Session, name: str, so: str) -> None:
    present = compiler(name) or (name == "cuda" and sys.platform == "linux")
    required = {"cuda": "nvcc", "rocm": "hip"}[name]
    skip_unless(session, present, required, NO_COMPILER[name] + so)


def test(session: nox.Session, environment: Environment, name: str) -> None:
    """The tests of one package: emulated always, compiled where there is a compiler.

    ``VLLM_OPS_REQUIRE`` knows ``nvcc`` and ``hip`` for the compilers, ``cuda`` and ``rocm`` for the
    GPU itself.
    """
    env = {"VLLM_OPS_GPU_PACKAGE": name, "VLLM_OPS_DEVICE": "native"}
    compiled = (
        f"tests/gpu/test_{name}_objects.py",
        "tests/gpu/test_no_gpu.py",
        "tests/gpu/test_device.py",
    )
    others = [f"--ignore={path}" for path in compiled]
    other = "rocm" if name == "cuda" else "cuda"
    others.append(f"--ignore=tests/gpu/test_{other}_objects.py")
    environment.pytest("tests/gpu", *others, *session.posargs, **env)
    _skip_without_compiler(session, name, ": emulated, not compiled")
    folder = environment.path.parent
    path = wheel(session, environment, name, folder / "wheels", folder / "build" / f"main-{name}")
    environment.run(
        "python", "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", str(path)
    )
    try:
        environment.install(*TOOLS[name])
        environment.pytest(*compiled, **env)
    finally:
        environment.uninstall_project(name)


def build(session: nox.Session, environment: Environment, name: str) -> None:
    """The wheel of one package, into dist/."""
    _skip_without_compiler(session, name, "")
    wheel(session, environment, name, Path("dist"))
