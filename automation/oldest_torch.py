# SPDX-License-Identifier: Apache-2.0
"""The wheels that were built against the newest torch, under the oldest one that they name.

PyPI's torch 2.10 is a CUDA build, 915 MB, whose CUDA libraries are 3 GB more. None of them does
anything on a machine without a GPU, but the loader wants to find them: stand-ins, whose every
function is an illegal instruction, take the place of all but the two small ones.
"""

from __future__ import annotations

from pathlib import Path

import nox

from . import BUILD, Environment, gpu

TORCH = "torch==2.10.0"
NEEDS = (
    *("filelock", "typing-extensions", "sympy>=1.13.3", "networkx", "jinja2", "fsspec"),
    *("numpy", "pytest>=8", "hypothesis>=6"),
)
LIBRARIES = ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-cupti-cu12==12.8.90")
STOOD_IN = (
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcudnn.so.9",
    "libcufft.so.11",
    "libcufile.so.0",
    "libcurand.so.10",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvshmem_host.so.3",
)
PREFIXES = ("cublas", "cudnn", "cufft", "cuFile", "curand", "cusparse", "nccl", "nvshmem")


def _wanted(session: nox.Session, torch_lib: Path) -> set[str]:
    """The functions that torch's libraries take from those that are stood in for."""
    libraries = map(str, sorted(torch_lib.glob("lib*.so")))
    listed = session.run("nm", "-D", "-u", *libraries, external=True, silent=True)
    names = (line.split()[-1].partition("@")[0] for line in str(listed).splitlines() if line)
    return {name for name in names if name.startswith(PREFIXES)}


def stand_ins(session: nox.Session, torch_lib: Path, folder: Path) -> None:
    """Write a library of each name into ``folder``.

    The functions lie in one library of another name, which the others need: they have no versions,
    and the loader accepts that of a library only whose name the versions don't mention.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "functions.s"
    source.write_text(
        "".join(
            f".globl {name}\n.type {name},@function\n{name}: ud2\n"
            for name in sorted(_wanted(session, torch_lib))
        )
        + '.section .note.GNU-stack,"",@progbits\n'
    )

    def link(name: str, *inputs: str) -> None:
        options = (f"-Wl,-soname,{name}", "-o", str(folder / name))
        session.run("cc", "-shared", "-nostdlib", *inputs, *options, external=True, log=False)

    common = "libvllm_ops_stand_in.so"
    link(common, str(source))
    for name in STOOD_IN:
        link(name, "-Wl,--no-as-needed", str(folder / common))


def test(session: nox.Session, main: Environment) -> None:
    """Build the wheels of shared, cpu and cuda in ``main`` and try them under the oldest torch."""
    folder = main.path.parent / "wheels"
    paths = [
        gpu.wheel(session, main, name, folder, main.path.parent / "build" / f"main-{name}")
        for name in ("shared", "cpu", "cuda")
    ]
    oldest = Environment(session, "oldest")
    oldest.install(*NEEDS, *BUILD)  # a test builds a backend
    oldest.install("--no-deps", *LIBRARIES, TORCH)
    oldest.run(
        *("python", "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall"),
        *map(str, paths),
    )
    libraries = oldest.path / "stand_ins"
    stand_ins(session, next(oldest.path.glob("lib/python*/site-packages/torch/lib")), libraries)
    env = {"LD_LIBRARY_PATH": str(libraries)}
    oldest.pytest("tests/gpu/test_no_gpu.py", VLLM_OPS_GPU_PACKAGE="cuda", **env)
    if session.posargs:
        oldest.pytest(*session.posargs, VLLM_OPS_DEVICE="cpu", **env)
        return
    oldest.pytest("tests/interface", VLLM_OPS_DEVICE="cpu", **env)
    ops = "rms_norm or silu_and_mul or rotary or linear"
    oldest.pytest("tests/test_parity.py", "-k", ops, VLLM_OPS_DEVICE="cpu", **env)
