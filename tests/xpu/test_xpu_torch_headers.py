# SPDX-License-Identifier: Apache-2.0
"""A real XPU build, as far as a compiler can check one without it: against torch's c10/xpu."""

import importlib.metadata
import os
import subprocess
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def check(tmp_path, source):
    files = importlib.metadata.files("intel-sycl-rt")
    header = next(file for file in files if file.as_posix().endswith("include/sycl/sycl.hpp"))
    sycl = Path(str(header.locate())).resolve().parents[1]
    path = tmp_path / "check.cpp"
    path.write_text(source)
    system = (sycl, Path(torch.__file__).parent / "include", HERE / "headers")
    own = (ROOT / "packages/xpu/csrc", ROOT / "shared/csrc", ROOT / "shared/csrc/gpu")
    return subprocess.run(
        [
            *(os.environ.get("CXX", "g++"), "-std=c++20", "-fsyntax-only", "-DVLLM_OPS_SYCL"),
            *(f"-isystem{folder}" for folder in system),
            *(f"-I{folder}" for folder in own),
            str(path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def test_against_the_headers_of_torch(tmp_path):
    done = check(tmp_path, (HERE / "torch_xpu_check.cpp").read_text())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Queue, sycl::queue&", "Queue, sycl::event&"),
        (
            "#include <type_traits>",
            'extern "C" void aoti_torch_get_current_xpu_stream(int, int**);',
        ),
    ],
)
def test_the_check_can_fail(right, wrong, tmp_path):
    source = (HERE / "torch_xpu_check.cpp").read_text()
    assert right in source
    assert check(tmp_path, source.replace(right, wrong)).returncode != 0
