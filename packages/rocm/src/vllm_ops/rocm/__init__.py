# SPDX-License-Identifier: Apache-2.0
"""The ROCm backend of vllm_ops: kernels for AMD GPUs, CDNA 2 and 3, RDNA 3 and 4.

Importing this module loads nothing and initialises no device. :func:`load` registers the kernels;
``vllm_ops.shared`` calls it when the first module is built. torch for ROCm keeps CUDA's names: its
device type is ``cuda`` and its dispatch key ``CUDA``.
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

name: Final = "rocm"
device_type: Final = "cuda"
dispatch_key: Final = "CUDA"

_package = GpuPackage("rocm")

torch_version: Final = _package.built("BUILT_AGAINST_TORCH")


def version() -> str:
    """The version of the installed distribution."""
    return _package.version()


def covers(architecture: str, architectures: str) -> bool:
    """Whether a library for these architectures runs on ``gfx942:sramecc+:xnack-`` or the like."""
    return architecture.partition(":")[0] in architectures.split()


def available() -> tuple[bool, str]:
    """Whether the kernels can run here, and the reason in words. Loads no kernel."""
    missing = _package.missing()
    if missing:
        return False, missing
    import torch

    if torch.version.hip is None:
        return False, f"torch {torch.__version__} was built without ROCm"
    if not torch.cuda.is_available():
        return False, "torch finds no ROCm device"
    device = torch.cuda.get_device_name()
    architecture = torch.cuda.get_device_properties().gcnArchName
    architectures = _package.built("ARCHITECTURES")
    if not covers(architecture, architectures):
        return False, (
            f"{device} is {architecture}, and vllm-ops-rocm {version()} was built for "
            f"{architectures}"
        )
    return True, f"{device}, {architecture}"


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
