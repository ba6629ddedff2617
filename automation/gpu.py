# SPDX-License-Identifier: Apache-2.0
"""The sessions of the GPU packages. No GPU is needed: the kernels are emulated, and what the
compilers made of them is read from the objects. With a GPU the same cases run on it as well."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

from . import Environment, skip_unless

# The disassemblers, and a clang that knows gfx950.
TOOLS = {
    "cuda": ("nvidia-cuda-cuobjdump>=13", "nvidia-cuda-nvdisasm>=13"),
    "rocm": ("ziglang==0.17.0",),
}
COMPILER = {
    "cuda": ("nvcc", "no CUDA compiler was found (nvcc >= 13.0)"),
    "rocm": (
        "hip",
        "no HIP compiler was found (ROCm, or Debian's clang-19 clang-tools-19 llvm-19 lld-19 "
        "libclang-rt-19-dev libamdhip64-dev rocm-device-libs)",
    ),
}


def compiler(name: str) -> str | None:
    """The compiler that CMake would take for ``cuda`` or ``rocm``."""
    if name == "cuda":
        return os.environ.get("CUDACXX") or shutil.which("nvcc")
    if os.environ.get("HIPCXX") or Path("/opt/rocm").exists():
        return os.environ.get("HIPCXX", "/opt/rocm")
    has_runtime = Path("/usr/include/hip/hip_runtime.h").exists()
    return shutil.which("clang++-19") if has_runtime else None


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
    required, missing = COMPILER[name]
    skip_unless(session, compiler(name), required, f"{missing}: emulated, not compiled")
    environment.install_project(name)
    try:
        environment.install(*TOOLS[name])
        environment.pytest(*compiled, **env)
    finally:
        environment.uninstall_project(name)


def build(session: nox.Session, environment: Environment, name: str) -> None:
    """The wheel of one package, into dist/."""
    required, missing = COMPILER[name]
    skip_unless(session, compiler(name), required, missing)
    environment.run(
        *("python", "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"),
        *("-w", "dist", f"packages/{name}"),
        env={"CMAKE_GENERATOR": "Ninja"},
    )
