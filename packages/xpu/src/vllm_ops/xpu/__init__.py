# SPDX-License-Identifier: Apache-2.0
"""The XPU backend of vllm_ops: SYCL kernels for Intel GPUs.

Importing this module loads nothing and initialises no device. :func:`load` registers the kernels
under torch's ``XPU`` dispatch key; ``vllm_ops.shared`` calls it when the first module is built. The
kernels are compiled when they are first called, or by :func:`warmup`.

Nothing here has run on an Intel GPU: the tests run the kernels on the SYCL CPU device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from vllm_ops.shared.gpu_package import OPS, GpuPackage

from ._library import FAMILIES, Unit

if TYPE_CHECKING:
    import torch

__all__ = [
    "Unit",
    "available",
    "device_type",
    "dispatch_key",
    "evidence",
    "info",
    "load",
    "name",
    "ops_provided",
    "torch_version",
    "version",
    "warmup",
]

name: Final = "xpu"
device_type: str = "xpu"
dispatch_key: str = "XPU"

evidence: Final = "emulated"
"""Stays until ``vllm-ops parity xpu`` has passed on an Intel GPU."""

_package = GpuPackage("xpu")
_registered = False

torch_version: Final = _package.built("BUILT_AGAINST_TORCH")


def version() -> str:
    """The version of the installed distribution."""
    return _package.version()


def _distribution() -> str:
    return f"{_package.distribution} {version()}"


def available() -> tuple[bool, str]:
    """Whether an Intel GPU answers here, and the reason in words. Compiles no kernel.

    Raises:
        ImportError: it answers, but Intel's SYCL runtime is missing or too old; says what to
            install.
    """
    missing = _package.missing()
    if missing:
        return False, missing
    import torch

    from . import _runtime

    if dispatch_key == "CPU":
        _runtime.load(_package.built("SYCL_LIBRARY"), _distribution())
        return True, "the SYCL CPU device stands in for a GPU"
    if getattr(torch.version, "xpu", None) is None:
        return False, f"torch {torch.__version__} was built without XPU"
    if not torch.xpu.is_available():
        return False, "torch finds no XPU device"
    _runtime.load(_package.built("SYCL_LIBRARY"), _distribution())
    return True, torch.xpu.get_device_name()


def load() -> None:
    """Register the kernels with torch. Calling it again does nothing.

    Raises:
        ImportError: Intel's SYCL runtime is missing or too old, or the library can't be loaded into
            this torch.
    """
    global _registered
    if _registered:
        return
    from . import _library, _runtime

    _runtime.load(_package.built("SYCL_LIBRARY"), _distribution())
    _package.load()
    _library.open_library(_package.library).vllm_ops_xpu_register(dispatch_key.encode())
    _registered = True


def ops_provided() -> frozenset[str]:
    """The names of the operators that have a kernel."""
    return OPS


def info() -> dict[str, str]:
    """For ``vllm-ops info``: how the kernels are compiled, and by what."""
    from . import _runtime

    return {
        "kernels": _package.built("ARCHITECTURES"),
        "intel-sycl-rt": _runtime.installed() or "not installed",
    }


def warmup(
    ops: Iterable[str] | None = None,
    dtypes: Iterable[torch.dtype] | None = None,
    device: torch.device | str | None = None,
) -> list[Unit]:
    """Compile kernels now, instead of when they are first called.

    Args:
        ops: names of operators; all by default.
        dtypes: of float32, float16 and bfloat16; all three by default.
        device: an XPU device; the current one by default.

    Returns:
        What was compiled together and how many seconds it took, 0 for what was there already.

    Raises:
        ValueError: an operator or a dtype has no kernels.
        RuntimeError: the compiler's message.
        ImportError: as :func:`load`.
    """
    import torch

    from . import _library

    known = [torch.float32, torch.float16, torch.bfloat16]
    ops = sorted(OPS) if ops is None else list(ops)
    dtypes = known if dtypes is None else list(dtypes)
    for op in ops:
        if op not in OPS:
            raise ValueError(f"warmup: ops must be among {', '.join(sorted(OPS))}, got {op!r}")
    for dtype in dtypes:
        if dtype not in known:
            raise ValueError(f"warmup: dtypes must be float32, float16 or bfloat16, got {dtype}")
    load()
    families = {family for op in ops for family in FAMILIES[op]}
    library = _library.open_library(_package.library)
    words = {str(dtype).removeprefix("torch.") for dtype in dtypes}
    if dispatch_key == "CPU":
        return _library.compile_units(library, None, families, words)
    with torch.xpu.device(device):
        queue = torch.xpu.current_stream().sycl_queue
        return _library.compile_units(library, queue, families, words)
