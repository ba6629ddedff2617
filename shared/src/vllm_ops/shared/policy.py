# SPDX-License-Identifier: Apache-2.0
"""Which operators may use a kernel, on which device, and whether falling back to native is an
error.

Three settings, each with an environment variable for a whole process and a context manager for a
block of code. The context manager wins; it is a context variable, so threads and async tasks don't
see each other's. A setting is read when a module is built or redispatched, never per call.

=======================  ======================  ==========================================
environment              context manager         value
=======================  ======================  ==========================================
``VLLM_OPS_CUSTOM_OPS``  ``custom_ops([...])``   ``all``, ``none``, ``+op``, ``-op``
``VLLM_OPS_DEVICE``      ``device("cpu")``       a backend's name, or ``native``
``VLLM_OPS_STRICT``      ``strict()``            ``1``: a native fall-back raises
=======================  ======================  ==========================================
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = [
    "ENV_CUSTOM_OPS",
    "ENV_DEVICE",
    "ENV_STRICT",
    "OpPolicy",
    "current_device",
    "current_ops",
    "custom_ops",
    "device",
    "is_strict",
    "parse",
    "problems",
    "settings",
    "strict",
    "suggest",
]

ENV_CUSTOM_OPS = "VLLM_OPS_CUSTOM_OPS"
ENV_DEVICE = "VLLM_OPS_DEVICE"
ENV_STRICT = "VLLM_OPS_STRICT"

_custom_ops: ContextVar[OpPolicy | None] = ContextVar("vllm_ops_custom_ops", default=None)
_device: ContextVar[str | None] = ContextVar("vllm_ops_device", default=None)
_strict: ContextVar[bool | None] = ContextVar("vllm_ops_strict", default=None)


@dataclass(frozen=True)
class OpPolicy:
    """A parsed policy: the default, and the operators that differ from it."""

    default: bool = True
    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    source: str = "the default policy"

    def allows(self, name: str) -> bool:
        """Whether the operator of that name may use a kernel."""
        return name in self.enabled or (self.default and name not in self.disabled)


_DEFAULT = OpPolicy()


def suggest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'rms_norm'?`` where something is close, else a full stop."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def parse(terms: Iterable[str], known: Iterable[str], source: str) -> OpPolicy:
    """Read ``["none", "+silu_and_mul"]``.

    Raises:
        TypeError: a term is no string.
        ValueError: a term is malformed, names no known operator, or contradicts another.
    """
    known = sorted(known)
    default: bool | None = None
    enabled: set[str] = set()
    disabled: set[str] = set()
    for raw in terms:
        if not isinstance(raw, str):
            raise TypeError(f"{source}: expected strings, got {raw!r}")
        term = raw.strip()
        if not term:
            continue
        if term in ("all", "none"):
            if default is not None and default != (term == "all"):
                raise ValueError(f"{source}: 'all' and 'none' contradict each other")
            default = term == "all"
            continue
        sign, name = term[:1], term[1:].strip()
        if sign not in ("+", "-") or not name:
            raise ValueError(
                f"{source}: expected 'all', 'none', '+op' or '-op', got {term!r}"
                + suggest(term, ["all", "none", *(f"+{n}" for n in known)])
            )
        if name not in known:
            raise ValueError(
                f"{source}: unknown operator {name!r}{suggest(name, known)} "
                f"Known operators: {', '.join(known)}"
            )
        (enabled if sign == "+" else disabled).add(name)
    both = sorted(enabled & disabled)
    if both:
        raise ValueError(f"{source}: {', '.join(both)} is both enabled and disabled")
    return OpPolicy(default is not False, frozenset(enabled), frozenset(disabled), source)


@functools.lru_cache(maxsize=64)
def _parse_env(value: str, known: frozenset[str]) -> OpPolicy:
    return parse(value.split(","), known, f"{ENV_CUSTOM_OPS}={value}")


def current_ops(known: Iterable[str]) -> OpPolicy:
    """The policy in force here and now.

    Args:
        known: the registered names.
    """
    policy = _custom_ops.get()
    if policy is not None:
        return policy
    value = os.environ.get(ENV_CUSTOM_OPS, "").strip()
    return _parse_env(value, frozenset(known)) if value else _DEFAULT


def current_device() -> str | None:
    """The backend that is asked for by name, or None for the automatic choice."""
    return _device.get() or os.environ.get(ENV_DEVICE, "").strip() or None


def is_strict() -> bool:
    """Whether a native fall-back is an error here and now.

    Raises:
        ValueError: ``VLLM_OPS_STRICT`` is neither 0 nor 1.
    """
    value = _strict.get()
    if value is not None:
        return value
    raw = os.environ.get(ENV_STRICT, "").strip().lower()
    if raw in ("", "0", "false", "off", "no"):
        return False
    if raw in ("1", "true", "on", "yes"):
        return True
    raise ValueError(f"{ENV_STRICT} must be 0 or 1, got {raw!r}")


def settings() -> dict[str, str]:
    """The environment variables that are set, for diagnostics."""
    names = (ENV_CUSTOM_OPS, ENV_DEVICE, ENV_STRICT)
    return {name: os.environ[name] for name in names if os.environ.get(name, "").strip()}


def problems(known: Iterable[str]) -> list[str]:
    """What is wrong with the settings in force, one sentence each: what building a module would
    raise, and variables whose name is nearly one of these.

    Args:
        known: the registered names.
    """
    from . import backends

    def check_device() -> None:
        asked = current_device()
        if asked is not None:
            backends.check_name(asked, ENV_DEVICE)

    found = []
    for check in (lambda: current_ops(known), check_device, is_strict):
        try:
            check()
        except ValueError as error:
            found.append(str(error))
    names = (ENV_CUSTOM_OPS, ENV_DEVICE, ENV_STRICT)
    for name in sorted(os.environ.keys() - set(names)):
        if name.startswith("VLLM_OPS_") and difflib.get_close_matches(name, names, 1, 0.85):
            found.append(f"{name} is no setting{suggest(name, names)}")
    return found


@contextmanager
def custom_ops(terms: Iterable[str]) -> Iterator[None]:
    """Enable and disable operators for the modules that are built in this block.

    Args:
        terms: ``"all"``, ``"none"``, ``"+rms_norm"``, ``"-rms_norm"``.

    Raises:
        ValueError: as for :func:`parse`.
    """
    from .custom_op import CustomOp

    if isinstance(terms, str):
        terms = terms.split(",")
    terms = list(terms)
    token = _custom_ops.set(parse(terms, CustomOp.op_registry, f"custom_ops({terms!r})"))
    try:
        yield
    finally:
        _custom_ops.reset(token)


@contextmanager
def device(name: str) -> Iterator[None]:
    """Choose the backend by name for the modules that are built in this block.

    Raises:
        ValueError: no backend has that name.
    """
    from . import backends

    backends.check_name(name, f"device({name!r})")
    token = _device.set(name)
    try:
        yield
    finally:
        _device.reset(token)


@contextmanager
def strict(enabled: bool = True) -> Iterator[None]:
    """Make a native fall-back an error for the modules that are built in this block.

    Raises:
        TypeError: ``enabled`` is not a bool.
    """
    if not isinstance(enabled, bool):
        raise TypeError(f"strict: enabled must be True or False, got {enabled!r}")
    token = _strict.set(enabled)
    try:
        yield
    finally:
        _strict.reset(token)
