# SPDX-License-Identifier: Apache-2.0
"""What is in the wheels and the sdists."""

import os
import platform
import re
import subprocess
import sys
import zipfile

import pytest


def test_tag(built):
    name, version, *tag = built.wheel.stem.split("-")
    assert name == f"vllm_ops_{built.distribution.name}"
    assert version == built.distribution.project["version"]
    platform_tag = (
        "any" if built.distribution.name in ("shared", "tpu") else f"linux_{platform.machine()}"
    )
    assert tag == ["py3", "none", platform_tag]


def test_wheel_leaves_the_namespace_open(built):
    assert "vllm_ops/__init__.py" not in built.wheel_files
    own = f"vllm_ops/{built.distribution.name}/"
    strangers = [
        name for name in built.wheel_files if not name.startswith(own) and ".dist-info/" not in name
    ]
    assert not strangers


def test_wheel_has_licence_and_types(built):
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in built.wheel_files)
    assert f"vllm_ops/{built.distribution.name}/py.typed" in built.wheel_files


def test_wheel_has_every_module(built):
    source = built.distribution.folder / "src"
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    assert modules <= set(built.wheel_files)
    assert len(modules) >= 1


def test_wheel_metadata(built):
    project = built.distribution.project
    assert f"Name: {project['name']}\n" in built.metadata
    assert "License-Expression: Apache-2.0\n" in built.metadata
    requires = re.findall(r"^Requires-Dist: (.*)$", built.metadata, re.MULTILINE)
    plain = {line.replace(" ", "") for line in requires if ";" not in line}
    assert plain == {line.replace(" ", "") for line in project["dependencies"]}


def test_cpu_wheel_has_one_library_that_needs_libtorch_alone(all_built):
    (cpu,) = (built for built in all_built if built.distribution.name == "cpu")
    libraries = [name for name in cpu.wheel_files if name.endswith(".so")]
    assert libraries == ["vllm_ops/cpu/libvllm_ops_cpu.so"]
    with zipfile.ZipFile(cpu.wheel) as archive:
        content = archive.read(libraries[0])
    assert b"libtorch.so\0" in content
    assert b"libtorch_python.so\0" not in content
    assert b"libpython" not in content


def test_sdist_builds_and_carries_no_leftovers(built):
    """The wheel was built from the sdist; here, that it holds sources only."""
    files = built.sdist_files
    assert {"LICENSE", "README.md", "pyproject.toml"} <= set(files)
    leftovers = [name for name in files if name.endswith((".so", ".o", ".pyc", ".whl"))]
    assert not leftovers
    assert not [name for name in files if name.startswith(("build/", "dist/", ".nox/"))]


def test_no_two_wheels_write_the_same_file(all_built):
    seen = {}
    for built in all_built:
        for name in built.wheel_files:
            assert name not in seen, f"{name} is in {seen.get(name)} and {built.wheel.name}"
            seen[name] = built.wheel.name


@pytest.fixture(scope="module")
def installed(all_built, tmp_path_factory):
    """Each wheel unpacked into a folder of its own, as on a path with several site-packages."""
    folders = []
    for built in all_built:
        folder = tmp_path_factory.mktemp(built.distribution.name)
        with zipfile.ZipFile(built.wheel) as archive:
            archive.extractall(folder)
        folders.append(str(folder))
    return folders


def run(code, path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    # The repository must not be on the path, and -c puts the working directory there.
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=path[0],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_wheels_from_two_folders_work_together(installed):
    out = run(
        "import torch, vllm_ops, vllm_ops.shared as s, vllm_ops.cpu\n"
        "norm = s.RMSNorm(8)\n"
        "print(norm.decision.method, norm(torch.ones(2, 8)).shape)\n"
        "print(list(vllm_ops.__path__))",
        installed,
    )
    assert "forward_kernel torch.Size([2, 8])" in out
    assert all(folder in out for folder in installed)
