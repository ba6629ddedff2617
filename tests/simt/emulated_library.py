# SPDX-License-Identifier: Apache-2.0
"""Compile a GPU package's own sources, launch files included, for the emulator."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "shared" / "csrc"
HERE = Path(__file__).resolve().parent
FAMILIES = ("activation", "norm", "rotary")

FLAGS = ("-std=c++17", "-O1", "-g1", "-fPIC", "-ffp-contract=off", "-Wall", "-Wno-unknown-pragmas")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O1")


def _torch() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError("the emulated kernels are called through torch, which is not installed")
    return Path(spec.origin).parent


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def _sources(package: str) -> list[Path]:
    suffix = {"cuda": "cu", "rocm": "hip"}[package]
    launch = [ROOT / "packages" / package / "csrc" / f"{name}.{suffix}" for name in FAMILIES]
    return [
        *launch,
        *sorted((CSRC / "gpu" / "binding").glob("*.cpp")),
        HERE / "simt.cpp",
        HERE / "device.cpp",
    ]


@dataclass(frozen=True)
class Changed:
    """A copy of shared/csrc with a change in it, and the sources that see it, by stem."""

    csrc: Path
    sources: frozenset[str]


def build(
    package: str, folder: Path, flags: tuple[str, ...] = (), changed: Changed | None = None
) -> Path:
    """Compile ``package`` ("cuda" or "rocm") and return the library.

    Args:
        folder: for the objects and the library; what is there already and up to date is used.
        flags: further compiler flags.
        changed: for a test that proves that a fault is found.

    Raises:
        RuntimeError: with the compiler's message.
    """
    torch = _torch()
    folder.mkdir(parents=True, exist_ok=True)
    own = ROOT / "packages" / package / "csrc"
    compiler = os.environ.get("CXX", "g++")

    def command(csrc: Path) -> tuple[list[str], str]:
        words = [
            compiler,
            *FLAGS,
            *flags,
            "-DVLLM_OPS_SIMT",
            f"-DVLLM_OPS_PACKAGE={package}",
            "-DTORCH_TARGET_VERSION=0x020a000000000000ULL",
            *(f"-I{HERE}", f"-I{csrc / 'gpu'}", f"-I{own}", f"-isystem{torch / 'include'}"),
        ]
        digest = hashlib.sha256(repr(words).encode())
        for header in sorted([*csrc.rglob("*.h"), *HERE.glob("*.h"), own / "tuning.h"]):
            digest.update(header.read_bytes())
        return words, digest.hexdigest()

    def compile_one(source: Path) -> Path:
        csrc = CSRC
        if changed is not None and source.stem in changed.sources:
            csrc = changed.csrc
            if source.is_relative_to(CSRC):
                source = csrc / source.relative_to(CSRC)
        words, common = command(csrc)
        key = hashlib.sha256(common.encode() + source.read_bytes()).hexdigest()[:16]
        target = folder / f"{source.stem}-{source.parent.name}-{key}.o"
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}")
            _run([*words, "-x", "c++", "-c", str(source), "-o", str(partial)])
            partial.rename(target)
        return target

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, _sources(package)))
    key = hashlib.sha256(repr(objects).encode()).hexdigest()[:16]
    library = folder / f"vllm_ops_{package}_simt-{key}.so"
    if not library.exists():
        partial = library.with_suffix(f".{os.getpid()}")
        link = [compiler, "-shared", *flags, *map(str, objects), "-o", str(partial)]
        _run([*link, "-Wl,--no-as-needed", f"-L{torch / 'lib'}", "-ltorch"])
        partial.rename(library)
    return library
