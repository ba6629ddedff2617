# SPDX-License-Identifier: Apache-2.0
"""The CUDA backend of vllm_ops: kernels for NVIDIA GPUs from Turing (sm_75) on.

Importing this module loads nothing and initialises no device. :func:`load` registers the kernels
under torch's ``CUDA`` dispatch key; ``vllm_ops.shared`` calls it when the first module is built.
"""

from __future__ import annotations

from typing import Final

from vllm_ops.shared.gpu_package import OPS, GpuPackage

__all__ = [
    "available",
    "device_type",
    "dispatch_key",
    "info",
    "load",
    "name",
    "ops_provided",
    "torch_version",
    "version",
]

name: Final = "cuda"
device_type: Final = "cuda"
dispatch_key: Final = "CUDA"

_package = GpuPackage("cuda")

torch_version: Final = _package.built("BUILT_AGAINST_TORCH")


def version() -> str:
    """The version of the installed distribution."""
    return _package.version()


def _capabilities(architectures: str) -> list[int]:
    """``"sm_75 sm_100"`` as ``[75, 100]``."""
    return sorted(int(word.removeprefix("sm_")) for word in architectures.split())


def covers(capability: int, architectures: str) -> bool:
    """Whether a library for these architectures runs on a GPU of this compute capability.

    Machine code runs on later minor versions of its major one; beyond the newest there is PTX.
    """
    known = _capabilities(architectures)
    same_major = [c for c in known if c // 10 == capability // 10 and c <= capability]
    return bool(same_major) or (bool(known) and capability > known[-1])


def available() -> tuple[bool, str]:
    """Whether the kernels can run here, and the reason in words. Loads no kernel."""
    missing = _package.missing()
    if missing:
        return False, missing
    import torch

    if torch.version.cuda is None:
        return False, f"torch {torch.__version__} was built without CUDA"
    if not torch.cuda.is_available():
        return False, "torch finds no CUDA device"
    device = torch.cuda.get_device_name()
    major, minor = torch.cuda.get_device_capability()
    architectures = _package.built("ARCHITECTURES")
    if not covers(10 * major + minor, architectures):
        return False, (
            f"{device} is sm_{major}{minor}, and vllm-ops-cuda {version()} was built for "
            f"{architectures}"
        )
    return True, f"{device}, sm_{major}{minor}"


def load() -> None:
    """Register the kernels with torch. Calling it again does nothing.

    Raises:
        ImportError: the library can't be loaded into this torch, with both torch versions.
    """
    _package.load()


def ops_provided() -> frozenset[str]:
    """The names of the operators that have a kernel."""
    return OPS


def info() -> dict[str, str]:
    """For ``vllm-ops info``."""
    return {"architectures": _package.built("ARCHITECTURES")}
