# SPDX-License-Identifier: Apache-2.0
"""The machine code in the rocm package's library, and that of gfx950 from a newer compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from vllm_ops.shared.gpu_package import GpuPackage

from . import objects
from .conftest import ROOT, simt

TARGETS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
REGISTERS = 128 * 512
"""Vector registers of a block: at most 128 a thread where a block has 512 threads, which leaves
room for two blocks a compute unit on every target."""
BITCODE = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
CONTROLS = (
    "ocml",
    "oclc_unsafe_math_off",
    "oclc_finite_only_off",
    "oclc_daz_opt_off",
    "oclc_correctly_rounded_sqrt_on",
    "oclc_wavefrontsize64_on",
)
LLD = """#!/bin/sh
# clang calls the generic driver: lld -flavor gnu ...
[ "$1" = -flavor ] && shift 2
exec {python} -m ziglang ld.lld "$@"
"""


@pytest.fixture(scope="module")
def code_objects(package) -> list[tuple[str, Path]]:
    if package != "rocm":
        pytest.skip("about the library of the rocm package")
    library = GpuPackage("rocm").library
    return [(target, objects.temporary(data)) for target, data in objects.code_objects(library)]


def _llvm(name: str) -> str:
    found = objects.tool(f"{name}-19", name)
    assert found, f"no {name}: install Debian's llvm-19"
    return found


def _check_code(target: str, path: Path, code: dict[str, str]) -> list[objects.Kernel]:
    """The kernels of a code object, after a look at the instructions of each."""
    kernels = objects.rocm_kernels(_llvm("llvm-readelf"), target, path)
    for kernel in kernels:
        body = code[kernel.symbol]
        assert not re.search(r"\bscratch_(load|store)", body), str(kernel)
        wide = [
            re.search(rf"\b(global|flat)_{access}_(dwordx4|b128)\b", body)
            for access in ("load", "store")
        ]
        assert all(wide) or not kernel.vectors, str(kernel)
    return kernels


def test_objects(code_objects):
    kernels = []
    for target, path in code_objects:
        kernels += _check_code(target, path, objects.rocm_code(_llvm("llvm-objdump"), path))
    assert {kernel.target for kernel in kernels} == set(TARGETS)
    objects.check(kernels, REGISTERS)


def test_gfx950(package, tmp_path):
    """Device code only: the package's compiler doesn't know this target, ziglang's does."""
    if package != "rocm":
        pytest.skip("about the rocm package")
    driver = tmp_path / "lld"
    driver.write_text(LLD.format(python=sys.executable))
    driver.chmod(0o755)
    number = tmp_path / "isa.ll"
    number.write_text(
        'target triple = "amdgcn-amd-amdhsa"\n'
        "@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr addrspace(4) constant "
        "i32 9500, align 4\n"
    )
    isa = tmp_path / "isa.bc"
    subprocess.run([_llvm("llvm-as"), str(number), "-o", str(isa)], check=True)
    linked = [*(BITCODE / f"{name}.bc" for name in CONTROLS), isa]
    ziglang = Path(__import__("ziglang").__file__).parent
    csrc = ROOT / "packages" / "rocm" / "csrc"
    kernels = []
    for family in simt.FAMILIES:
        output = tmp_path / f"{family}.co"
        command = [
            *(sys.executable, "-m", "ziglang", "clang", "-x", "hip", "--offload-arch=gfx950"),
            *("-std=c++17", "-O3", "-ffp-contract=off", "-fdeclspec", "-ffreestanding"),
            *("--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"),
            *("-isystem", str(ziglang / "lib" / "include")),
            *(f"-I{ROOT / 'tests' / 'gpu' / 'hip_stand_in'}", f"-I{csrc}"),
            f"-I{simt.CSRC / 'gpu'}",
        ]
        for path in linked:
            command += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(path)]
        env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            [*command, "--save-temps=obj", "-c", str(csrc / f"{family}.hip"), "-o", str(output)],
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
        assert done.returncode == 0, done.stderr
        # LLVM 19 can't disassemble this target: what was assembled is read instead.
        (assembly,) = tmp_path.glob(f"{family}-*gfx950.s")
        kernels += _check_code("gfx950", output, objects.assembly_code(assembly))
    objects.check(kernels, REGISTERS)
