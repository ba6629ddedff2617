# SPDX-License-Identifier: Apache-2.0
"""Discovery of device packages: which are installed, which can run here and why not, and loading
them.

A backend is any object, usually the device package's module itself, with the attributes of
:class:`Backend`. The six known ones are found by ``importlib.util.find_spec`` and imported only
when their device is considered; third parties add theirs through the entry-point group
``vllm_ops.backends`` (``toy = "my_package.backend"``), read the first time an automatic choice or
an unknown name needs them. Nothing here runs at import.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

import torch

from . import policy
from .decision import DispatchError

__all__ = [
    "ENTRY_POINT_GROUP",
    "KNOWN",
    "METHODS",
    "NATIVE",
    "Backend",
    "LinearPath",
    "Probe",
    "check_name",
    "choose",
    "forward_method",
    "limits",
    "linear_path",
    "load_library",
    "names",
    "probe",
    "probed",
    "refresh",
    "third_party",
]

if TYPE_CHECKING:
    import torch

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

    Optional attributes:
        torch_version: the version of torch that its library was built with; an error at loading
        names it beside the version that runs.
        evidence: ``"device"`` (the default) where the kernels run on their own hardware,
        ``"emulated"`` where an emulator runs them.
        linear_path: see :func:`linear_path`.
        limits: see :func:`limits`.
        info: a function that returns a dictionary of strings for ``vllm-ops info``, such as
        ``{"isa": "avx512"}``.
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


_REQUIRED = (
    "name",
    "device_type",
    "dispatch_key",
    "available",
    "load",
    "ops_provided",
    "version",
)


@dataclass(frozen=True)
class Probe:
    """What was found out about one backend.

    Attributes:
        name: the backend's name.
        installed: its package can be found.
        usable: installed, available and loaded.
        reason: one sentence: why it is or isn't usable.
        backend: the backend itself where it could be imported.
        ops: the operators that have a kernel.
        version: the version of its package.
        broken: installed, and unusable for another reason than a device that isn't there.
    """

    name: str
    installed: bool
    usable: bool
    reason: str
    backend: Backend | None = None
    ops: frozenset[str] = frozenset()
    version: str = ""
    broken: bool = False


_lock = threading.RLock()
_probes: dict[str, Probe] = {}
_entry_points: dict[str, importlib.metadata.EntryPoint] | None = None
_unusable_asked: set[str] = set()


def _unlock_in_child() -> None:
    """A thread that held the lock at a fork does not exist in the child."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)


def refresh() -> None:
    """Forget every probe, for tests and for packages installed while the process runs."""
    global _entry_points
    with _lock:
        _probes.clear()
        _unusable_asked.clear()
        _entry_points = None
        importlib.invalidate_caches()


def third_party() -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of third-party backends by name, read once.

    The names of the known backends are theirs alone, and of two distributions that claim one name
    the first found keeps it; the other is reported by a warning.
    """
    global _entry_points
    with _lock:
        if _entry_points is None:
            found: dict[str, importlib.metadata.EntryPoint] = {}
            for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
                first = found.get(point.name)
                if point.name in (*KNOWN, NATIVE) or (first and first.value != point.value):
                    owner = first.value if first else "vllm_ops itself"
                    warnings.warn(
                        f"vllm_ops: the backend name {point.name!r} belongs to {owner}; "
                        f"{point.value} is ignored",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                    continue
                found[point.name] = point
            _entry_points = found
        return _entry_points


def names() -> tuple[str, ...]:
    """Every backend name, in the order of the automatic choice."""
    return (*KNOWN[:-1], *third_party(), KNOWN[-1])


def forward_method(name: str) -> str:
    """The forward method of a backend: ``forward_<name>``, and ``forward_hip`` for rocm."""
    return METHODS.get(name) or f"forward_{name.replace('-', '_')}"


def check_name(name: str, source: str) -> None:
    """Raise ValueError if no backend is called ``name``."""
    if name in KNOWN or name == NATIVE or name in third_party():
        return
    known = (*names(), NATIVE)
    raise ValueError(
        f"{source}: unknown device {name!r}{policy.suggest(name, known)} "
        f"Known devices: {', '.join(known)}"
    )


def probe(name: str) -> Probe:
    """Find, ask and load one backend; the answer is kept.

    A package that is installed but cannot be used warns once, unless its device simply isn't there.

    Raises:
        ValueError: no backend has that name.
    """
    found = _probes.get(name)
    if found is not None:
        return found
    if name == NATIVE:
        return Probe(NATIVE, True, False, "native was asked for")
    check_name(name, f"probe({name!r})")
    with _lock:
        if name not in _probes:
            _probes[name] = _probe(name)
        return _probes[name]


def probed() -> tuple[Probe, ...]:
    """What was found out so far, without asking anything."""
    return tuple(_probes.values())


def _resolve(name: str) -> Backend | None:
    """Import the backend, or return None where its package isn't installed."""
    if name in KNOWN:
        module = f"vllm_ops.{name}"
        if importlib.util.find_spec(module) is None:
            return None
        return cast(Backend, importlib.import_module(module))
    return cast(Backend, third_party()[name].load())


def _probe(name: str) -> Probe:
    backend = None
    try:
        backend = _resolve(name)
        if backend is None:
            return Probe(name, False, False, f"vllm-ops-{name} is not installed")
        missing = [part for part in _REQUIRED if not hasattr(backend, part)]
        if missing:
            raise ImportError(f"the backend lacks {', '.join(missing)}")
        if backend.name != name:
            raise ImportError(f"the backend calls itself {backend.name!r}")
        version = backend.version()
        available, reason = backend.available()
        if not available and backend.device_type == "cpu":
            # There is always a CPU, so this is damage and not an absent device.
            raise ImportError(reason)
        if not available:
            return Probe(name, True, False, reason, backend, version=version)
        backend.load()
        ops = frozenset(backend.ops_provided())
        _check_registered(ops, backend.dispatch_key)
        # Asked again: a backend may know more about itself once its library is loaded.
        reason = backend.available()[1]
        return Probe(name, True, True, reason, backend, ops, version)
    except Exception as error:
        reason = _describe(error, backend)
        warnings.warn(
            f"vllm_ops: the {name} backend is installed but cannot be used: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return Probe(name, True, False, reason, broken=True)


def _check_registered(ops: frozenset[str], key: str) -> None:
    """A backend is taken at its word only where the dispatcher agrees."""
    from .ops import NAMESPACE, OPS

    unknown = sorted(ops - OPS.keys())
    if unknown:
        raise ImportError(f"it provides unknown operators: {', '.join(unknown)}")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    absent = sorted(op for op in ops if not has_kernel(f"{NAMESPACE}::{op}", key))
    if absent:
        raise ImportError(
            f"it says that it provides {', '.join(absent)}, "
            f"but registered no kernel under the dispatch key {key}"
        )


def _describe(error: Exception, backend: Backend | None) -> str:
    """The error in one line; where the library was built with another torch, both versions."""
    text = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    built = getattr(backend, "torch_version", None)
    if built and built != torch.__version__ and not (built in text and torch.__version__ in text):
        reason += f" (it was built with torch {built}, this is torch {torch.__version__})"
    return reason


def load_library(path: str, *, package: str, torch_version: str) -> None:
    """``torch.ops.load_library`` with an error that says what to do, for :meth:`Backend.load`.

    Args:
        path: of the shared library.
        package: the distribution that ships it, as ``vllm-ops-cpu 0.1.0``.
        torch_version: the version of torch that it was built with.

    Raises:
        ImportError: the library is missing, lacks a symbol, or cannot be loaded otherwise.
    """
    try:
        torch.ops.load_library(path)
    except Exception as error:
        raise ImportError(
            f"{package} was built with torch {torch_version}, this is torch {torch.__version__}: "
            f"{' '.join(str(error).split())}"
        ) from error


class LinearPath(NamedTuple):
    """Whether the kernel runs, why, and up to how many rows of ``x``; None for any number."""

    kernel: bool
    reason: str
    most_rows: int | None = None


def linear_path(name: str, dtype: torch.dtype) -> LinearPath | None:
    """Whether a backend wants its kernel to run ``linear`` in this dtype, and why.

    A backend whose kernel pays in some dtypes, on some machines or for few rows only has a function
    ``linear_path(dtype: str) -> (kernel, reason)`` or ``(kernel, reason, most_rows)``; its kernel
    then hands more rows to torch itself. None: it has not, so its kernel always runs.
    """
    ask = getattr(probe(name).backend, "linear_path", None)
    if ask is None:
        return None
    return LinearPath(*ask(str(dtype).removeprefix("torch.")))


def limits(name: str, op: str) -> str | None:
    """Which calls of an operator a loaded backend's kernel hands to the reference, in words.

    Told by the backend's function ``limits(op)``, where it has one.
    """
    found = _probes.get(name)
    ask = getattr(found.backend, "limits", None) if found is not None and found.usable else None
    return None if ask is None else ask(op)


def choose() -> Probe:
    """The backend for modules that are built here and now.

    The one asked for by policy; else the first accelerator whose package is installed and whose
    runtime answers; else the CPU; else a probe that says why there is none.

    Raises:
        DispatchError: under ``VLLM_OPS_STRICT``, where the automatic choice would pass over a
        package that is installed and broken.
        ValueError: ``VLLM_OPS_DEVICE`` names no backend.
    """
    asked = policy.current_device()
    if asked is not None:
        return probe(asked) if asked == NATIVE else _asked(asked)
    last = None
    for name in names():
        last = _probes.get(name) or probe(name)
        if last.usable:
            return last
        if last.broken and policy.is_strict():
            raise DispatchError(
                f"the {name} backend is installed but cannot be used: {last.reason} "
                f"({policy.ENV_STRICT} forbids to pass over it)"
            )
    return cast(Probe, last)


def _asked(name: str) -> Probe:
    found = _probes.get(name)
    if found is None:
        check_name(name, policy.ENV_DEVICE)
        found = probe(name)
    untold = not found.usable and not found.broken and name not in _unusable_asked
    if untold and not policy.is_strict():
        _unusable_asked.add(name)
        warnings.warn(
            f"vllm_ops: the device {name!r} was asked for, but {found.reason}; "
            "native operators run instead",
            RuntimeWarning,
            stacklevel=2,
        )
    return found
