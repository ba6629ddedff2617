# SPDX-License-Identifier: Apache-2.0
"""The machine code in the cuda package's library."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from vllm_ops.shared.gpu_package import GpuPackage

from . import objects

TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")


@pytest.fixture(scope="module")
def library(package) -> str:
    if package != "cuda":
        pytest.skip("about the library of the cuda package")
    return GpuPackage("cuda").library


@pytest.fixture(scope="module")
def cuobjdump() -> str:
    """From the toolkit, or PyPI's nvidia-cuda-cuobjdump, which needs its nvdisasm on the path."""
    packaged = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
    os.environ["PATH"] = f"{packaged}{os.pathsep}{os.environ['PATH']}"
    found = objects.tool("cuobjdump")
    assert found, "no cuobjdump: install nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm"
    return found


def test_resources(library, cuobjdump):
    kernels = objects.cuda_kernels(cuobjdump, library)
    assert {kernel.target for kernel in kernels} == set(TARGETS)
    objects.check(kernels, registers=65_536)


@pytest.mark.parametrize("target", TARGETS)
def test_vector_accesses(library, cuobjdump, target):
    """The vector path loads and stores 16 bytes at once and touches no local memory."""
    kernels = {k.symbol: k for k in objects.cuda_kernels(cuobjdump, library) if k.target == target}
    code = objects.cuda_code(cuobjdump, library, target)
    assert code.keys() >= kernels.keys()
    for symbol, kernel in kernels.items():
        assert not re.search(r"\b(LDL|STL)\b", code[symbol]), str(kernel)
        wide = (
            re.search(r"\bLDG\S*\.128\b", code[symbol]),
            re.search(r"\bSTG\S*\.128\b", code[symbol]),
        )
        assert all(wide) == kernel.vectors, str(kernel)


def test_ptx_for_what_comes_after(library, cuobjdump):
    listed = subprocess.run(
        [cuobjdump, "-lptx", library], capture_output=True, text=True, check=True
    )
    assert "sm_120" in listed.stdout


def test_needs_no_cuda_library(library):
    readelf = objects.tool("readelf", "llvm-readelf-19")
    assert readelf, "no readelf"
    done = subprocess.run([readelf, "-d", library], capture_output=True, text=True, check=True)
    needed = re.findall(r"NEEDED.*\[(\S+)\]", done.stdout)
    assert "libtorch.so" in needed
    assert not [name for name in needed if "cuda" in name or "nvidia" in name]
    assert Path(library).stat().st_size < 10 << 20
