# SPDX-License-Identifier: Apache-2.0
"""The SYCL CPU device in the place of an Intel GPU, for tests and measurements of ``vllm_ops.xpu``.

Needs Intel's wheels ``intel-sycl-rt`` and ``intel-opencl-rt``.
"""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

WHEELS = ("intel-sycl-rt>=2026.0,<2027", "intel-opencl-rt>=2026.0,<2027")
DRIVER = "libintelocl.so"


def driver() -> Path | None:
    """The OpenCL driver of the CPU in the installed ``intel-opencl-rt``, if any."""
    try:
        files = importlib.metadata.files("intel-opencl-rt") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if file.name == DRIVER)
    return next(found, None)


def write_icd(folder: Path) -> dict[str, str]:
    """Tell OpenCL's loader of that driver alone, by a file in ``folder``.

    Returns:
        The environment variables to set before SYCL's runtime is loaded.

    Raises:
        RuntimeError: ``intel-opencl-rt`` is not installed.
    """
    library = driver()
    if library is None:
        raise RuntimeError(f"{DRIVER} was not found: pip install {' '.join(map(repr, WHEELS))}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "intel.icd").write_text(f"{library}\n")
    return {"OCL_ICD_VENDORS": str(folder)}


def stand_in(folder: Path) -> None:
    """Let CPU tensors stand in for those of an Intel GPU in this process, from now on."""
    import vllm_ops.xpu

    os.environ.update(write_icd(folder), VLLM_OPS_DEVICE="xpu")
    vllm_ops.xpu.device_type = "cpu"
    vllm_ops.xpu.dispatch_key = "CPU"
