# SPDX-License-Identifier: Apache-2.0
"""Intel's SYCL runtime: found, checked and loaded before the library that needs it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "intel-sycl-rt"
MINIMUM: Final = (2026, 0)
INSTALL: Final = "pip install 'intel-sycl-rt>=2026.0,<2027'"

_loaded = False


def installed() -> str:
    """The version of the installed wheel, or nothing."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _in_process() -> str:
    """The name of the libsycl that is loaded already, torch's for instance, or nothing."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return ""
    found = re.search(r"/(libsycl\.so\.\d+)", maps)
    return found.group(1) if found else ""


def _of_wheel(library: str) -> str:
    """The path of ``library`` in the installed wheel, or nothing."""
    for file in importlib.metadata.files(DISTRIBUTION) or ():
        if file.name == library:
            return str(Path(str(file.locate())).resolve())
    return ""


def _too_old(version: str) -> bool:
    numbers = tuple(int(word) for word in re.findall(r"\d+", version)[:2])
    return numbers < MINIMUM


def load(needed: str, package: str) -> None:
    """Load ``needed`` (``libsycl.so.9``), so that the package's library finds it by its name.

    Raises:
        ImportError: there is none, or one that is too old, or torch has loaded another; says what
            to install.
    """
    global _loaded
    if _loaded:
        return
    present = _in_process()
    if present and present != needed:
        raise ImportError(
            f"{package} was built for {needed}, but this process runs on {present}, which torch "
            f"brought: install a torch that is built with oneAPI 2026, or build {package} from "
            f"source with the SYCL compiler that torch was built with"
        )
    version = installed()
    if version and _too_old(version) and not present:
        raise ImportError(
            f"{package} needs intel-sycl-rt 2026.0 or newer, found {version}: {INSTALL}"
        )
    path = _of_wheel(needed) if version else ""
    try:
        ctypes.CDLL(path or needed, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        if path:
            raise ImportError(
                f"{package} cannot load {path}: {error}. Reinstall it: {INSTALL}"
            ) from error
        state = f"intel-sycl-rt {version} has no {needed}" if version else "it is not installed"
        raise ImportError(
            f"{package} needs Intel's SYCL runtime ({needed}), and {state}: {INSTALL}"
        ) from error
    _loaded = True
