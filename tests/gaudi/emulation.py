# SPDX-License-Identifier: Apache-2.0
"""The emulator of the TPC kernels: built once, and set from the tests."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


def compiler():
    """The clang that builds the emulator, or None."""
    return shutil.which("clang++")


def c_compiler():
    """The clang beside it that takes C and assembly."""
    return shutil.which("clang")


def environment(**more):
    """The variables of a process that finds the cmake and ninja of this Python's environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **more}


def build(folder):
    """Build the emulator's two libraries in ``folder``; what is there already is used again."""
    torch = Path(importlib.util.find_spec("torch").origin).parent
    commands = (
        (
            *("cmake", "-G", "Ninja", "-S", HERE, "-B", folder),
            *(f"-DCMAKE_CXX_COMPILER={compiler()}", f"-DVLLM_OPS_TORCH_DIR={torch}"),
        ),
        ("cmake", "--build", folder, "-j", "2"),
    )
    for command in commands:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment()
        )
        if done.returncode != 0:
            raise RuntimeError(f"the emulator cannot be built:\n{done.stdout}\n{done.stderr}")


class Emulator:
    """The emulator inside this process."""

    def __init__(self, folder):
        self._library = ctypes.CDLL(os.fspath(Path(folder) / "libvllm_ops_gaudi_ops.so"))
        self._library.emulator_launches.restype = ctypes.c_int64
        self._library.emulator_padded_loads.restype = ctypes.c_int64

    def reports_violations(self):
        """Whether a load outside of an access pattern is noticed."""
        self._library.emulator_reports_violations.restype = ctypes.c_bool
        return self._library.emulator_reports_violations()

    @property
    def launches(self):
        """How many kernels have run."""
        return self._library.emulator_launches()

    @property
    def padded_loads(self):
        """How many elements were read beyond the end of a tensor, and were zero."""
        return self._library.emulator_padded_loads()

    @contextmanager
    def configured(self, parts=3, linear_lanes=False):
        """Split the index space into ``parts`` along each dimension."""
        self._library.emulator_configure(parts, linear_lanes)
        try:
            yield
        finally:
            self._library.emulator_configure(3, False)
