# SPDX-License-Identifier: Apache-2.0
"""Discovery of device packages: which are installed, which can run here and why not, and loading
them.

A backend is any object, usually the device package's module itself, with the attributes of
:class:`Backend`. The six known ones are found by ``importlib.util.find_spec`` and imported only
when their device is considered; third parties add theirs through the entry-point group
``vllm_ops.backends`` (``toy = "my_package.backend"``), read the first time a backend is looked for.
Nothing here runs at import.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import threading
import warnings
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from . import policy

ENTRY_POINT_GROUP = "vllm_ops.backends"
NATIVE = "native"
KNOWN = ("cuda", "rocm", "xpu", "tpu", "gaudi", "cpu")
"""In the order of the automatic choice; third parties come before the CPU."""

METHODS = {"rocm": "forward_hip"}
"""The forward method of a backend where it isn't ``forward_<name>``."""


@runtime_checkable
class Backend(Protocol):
    """What a device package provides.

    Attributes:
        name: ``cpu``, ``cuda``, ...
        device_type: the torch device type of its tensors, ``cpu``, ``cuda``, ``xla``, ...
        dispatch_key: the dispatch key its kernels are registered under, ``CPU``, ``CUDA``,
        ``XLA``, ...
    """

    name: str
    device_type: str
    dispatch_key: str

    def available(self) -> tuple[bool, str]:
        """Whether the device's runtime answers here, and the reason in words. Loads no kernel."""

    def load(self) -> None:
        """Register the kernels. Called once.

        Raises:
            ImportError: naming what is missing, or the two versions that don't fit.
        """

    def ops_provided(self) -> frozenset[str]:
        """The names of the operators that have a kernel. Called after :meth:`load`."""

    def version(self) -> str:
        """The version of the package, for diagnostics."""


@dataclass(frozen=True)
class Probe:
    """What was found out about one backend.

    Attributes:
        name: the backend's name.
        installed: its package can be found.
        usable: installed, available and loaded.
        reason: one sentence: why it is or isn't usable.
        backend: the backend itself where it is usable.
        ops: the operators that have a kernel.
        version: the version of its package.
    """

    name: str
    installed: bool
    usable: bool
    reason: str
    backend: Backend | None = None
    ops: frozenset[str] = frozenset()
    version: str = ""


_lock = threading.RLock()
_probes: dict[str, Probe] = {}
_entry_points: dict[str, importlib.metadata.EntryPoint] | None = None


def refresh() -> None:
    """Forget every probe, for tests and for packages installed while the process runs."""
    global _entry_points
    with _lock:
        _probes.clear()
        _entry_points = None
        importlib.invalidate_caches()


def third_party() -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of third-party backends by name, read once."""
    global _entry_points
    with _lock:
        if _entry_points is None:
            found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
            _entry_points = {point.name: point for point in found if point.name not in KNOWN}
        return _entry_points


def names() -> tuple[str, ...]:
    """Every backend name, in the order of the automatic choice."""
    return (*KNOWN[:-1], *third_party(), KNOWN[-1])


def check_name(name: str, source: str) -> None:
    """Raise ValueError if no backend is called ``name``."""
    known = (*names(), NATIVE)
    if name not in known:
        raise ValueError(
            f"{source}: unknown device {name!r}{policy.suggest(name, known)} "
            f"Known devices: {', '.join(known)}"
        )


def _resolve(name: str) -> Backend | None:
    """Import the backend, or return None where its package isn't installed."""
    if name in KNOWN:
        module = f"vllm_ops.{name}"
        if importlib.util.find_spec(module) is None:
            return None
        return cast(Backend, importlib.import_module(module))
    return cast(Backend, third_party()[name].load())


def probe(name: str) -> Probe:
    """Find, ask and load one backend; the answer is kept.

    A package that is installed but cannot be used warns once, unless its device simply isn't there.
    """
    found = _probes.get(name)
    if found is not None:
        return found
    with _lock:
        if name not in _probes:
            _probes[name] = _probe(name)
        return _probes[name]


def _probe(name: str) -> Probe:
    try:
        backend = _resolve(name)
        if backend is None:
            return Probe(name, False, False, f"vllm-ops-{name} is not installed")
        missing = [part for part in dir(Backend) if part[0] != "_" and not hasattr(backend, part)]
        if missing:
            raise ImportError(f"the backend lacks {', '.join(missing)}")
        available, reason = backend.available()
        if not available:
            return Probe(name, True, False, reason, version=backend.version())
        backend.load()
        return Probe(
            name, True, True, reason, backend, frozenset(backend.ops_provided()), backend.version()
        )
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"vllm_ops: the {name} backend is installed but cannot be used ({reason}); "
            "native operators run instead",
            RuntimeWarning,
            stacklevel=2,
        )
        return Probe(name, True, False, reason)


def choose() -> Probe:
    """The backend for modules that are built here and now.

    The one asked for by policy; else the first accelerator whose package is installed and whose
    runtime answers; else the CPU; else a probe that says why there is none.
    """
    asked = policy.current_device()
    if asked == NATIVE:
        return Probe(NATIVE, True, False, "native was asked for")
    if asked is not None:
        if asked not in _probes:
            check_name(asked, policy.ENV_DEVICE)
        return probe(asked)
    last = None
    for name in names():
        last = probe(name)
        if last.usable:
            return last
    return cast(Probe, last)
