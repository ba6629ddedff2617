# SPDX-License-Identifier: Apache-2.0
"""The sdists of the GPU packages: a link leads to the kernel source, and its files are in them."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers.distributions import ROOT

TARGETS = {"cuda": "90-real", "rocm": "gfx942"}
"""One is enough to see that nothing is missing."""


@pytest.fixture(scope="module", params=TARGETS)
def sdist(request, tmp_path_factory):
    """Name and sdist of a package."""
    target = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "-o", str(target)]
    subprocess.run([*command, str(ROOT / "packages" / request.param)], check=True)
    (path,) = target.glob("*.tar.gz")
    return request.param, path


def _compiler(name):
    if name == "cuda":
        return os.environ.get("CUDACXX") or shutil.which("nvcc")
    return os.environ.get("HIPCXX") or (
        Path("/usr/include/hip/hip_runtime.h").exists() and shutil.which("clang++-19")
    )


def test_the_kernel_source_is_in_it(sdist):
    _, path = sdist
    with tarfile.open(path) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
        for source in (ROOT / "shared" / "csrc").rglob("*"):
            if source.is_file():
                member = members[f"shared/{source.relative_to(ROOT / 'shared' / 'csrc')}"]
                assert member.isfile()
                assert archive.extractfile(member).read() == source.read_bytes()
    assert not [member.name for member in members.values() if member.issym() or member.islnk()]


def test_a_wheel_is_built_from_it_alone(sdist, tmp_path):
    name, path = sdist
    if not _compiler(name):
        pytest.skip(f"no compiler of {name} was found")
    alone = shutil.copy(path, tmp_path)
    architecture = f"--config-settings=cmake.define.CMAKE_{'CUDA' if name == 'cuda' else 'HIP'}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"),
            *(f"{architecture}_ARCHITECTURES={TARGETS[name]}", "-w", str(tmp_path), alone),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "2"},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert f"vllm_ops/{name}/libvllm_ops_{name}.so" in names
    assert all(one.startswith((f"vllm_ops/{name}/", f"vllm_ops_{name}-")) for one in names)
