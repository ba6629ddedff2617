# SPDX-License-Identifier: Apache-2.0
"""The package's own build where the compiler and the headers exist: with a compiler that writes its
command line in the place of an ELF, and this folder's declarations."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import emulation
import pytest

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "packages" / "gaudi"

TPC_CLANG = """#!{python}
import sys
arguments = sys.argv[1:]
with open(arguments[arguments.index("-o") + 1], "w") as file:
    file.write(" ".join(arguments))
"""
LIB_UTILS = """
def get_include_dir(): return {include!r}
def get_lib_dir(): return {lib!r}
"""


def run(*command, **env):
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=emulation.environment(**env)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the two libraries, for Gaudi 3."""
    folder = tmp_path_factory.mktemp("build")
    compiler = folder / "tpc-clang"
    compiler.write_text(TPC_CLANG.format(python=sys.executable))
    compiler.chmod(0o755)
    utils = folder / "site/habana_frameworks/torch/utils"
    utils.mkdir(parents=True)
    (utils / "lib_utils.py").write_text(
        LIB_UTILS.format(include=str(HERE / "declarations"), lib=str(folder))
    )
    clang = emulation.compiler()
    run(clang, "-shared", "-x", "c", os.devnull, "-o", str(folder / "libhabana_pytorch_plugin.so"))
    run(
        *(
            "cmake",
            "-G",
            "Ninja",
            "-S",
            str(PACKAGE),
            "-B",
            str(folder),
            f"-DCMAKE_CXX_COMPILER={clang}",
        ),
        *(f"-DCMAKE_ASM_COMPILER={emulation.c_compiler()}", f"-DVLLM_OPS_TPC_CLANG={compiler}"),
        *(f"-DVLLM_OPS_TPC_INCLUDE={HERE / 'declarations'}", "-DVLLM_OPS_GAUDI_GENERATION=gaudi3"),
        f"-DPython_EXECUTABLE={sys.executable}",
        PYTHONPATH=str(folder / "site"),
    )
    run("cmake", "--build", str(folder), "-j", "2")
    return folder


def test_each_kernel_is_compiled_and_embedded(built):
    library = ctypes.CDLL(str(built / "libvllm_ops_gaudi_tpc.so"))
    for kernel in ("silu_and_mul", "gelu_and_mul", "fused_add_rms_norm", "qk_norm"):
        for dtype in ("bf16", "f32"):
            size = ctypes.c_uint.in_dll(library, f"vllm_ops_elf_size_{kernel}_{dtype}").value
            elf = (ctypes.c_char * size).in_dll(library, f"vllm_ops_elf_{kernel}_{dtype}")
            arguments = elf.raw.decode().split()
            assert arguments[arguments.index("-c") + 1].endswith(f"/tpc/{kernel}.c")
            assert ("-DVLLM_OPS_BF16" in arguments) == (dtype == "bf16")
            assert "-march=gaudi3" in arguments


def test_kernels_are_offered_to_their_generation_only(built):
    library = ctypes.CDLL(str(built / "libvllm_ops_gaudi_tpc.so"))
    count = ctypes.c_uint32()
    found = []
    for device in range(3):  # Gaudi, Gaudi 2, Gaudi 3 in the declarations
        assert library.GetKernelGuids(device, ctypes.byref(count), None) == 0
        found.append(count.value)
    assert found == [0, 0, 8]


def test_torch_operators_need_the_runtime(built):
    """The library links, and asks for Habana's registration and nothing else unknown."""
    symbols = run("nm", "-DC", "--undefined-only", str(built / "libvllm_ops_gaudi_ops.so"))
    wanted = [line for line in symbols.splitlines() if "habana::" in line]
    assert len(wanted) == 3, json.dumps(wanted, indent=1)


def test_missing_compiler_is_the_reason(tmp_path):
    said = run(
        *("cmake", "-G", "Ninja", "-S", str(PACKAGE), "-B", str(tmp_path)),
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    assert "TPC kernels are not built: tpc-clang was not found" in said
    assert 'TPC_SKIPPED = "tpc-clang was not found"' in (tmp_path / "_build_info.py").read_text()
