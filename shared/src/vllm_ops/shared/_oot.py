# SPDX-License-Identifier: Apache-2.0
"""Out-of-tree replacement: which class is built when a class is asked for."""

from __future__ import annotations

from typing import Any

_replacements: dict[type, type] = {}
_resolved: dict[type, type] = {}
_origins: dict[type, type] = {}

_NO_OVERRIDE = frozenset(
    {
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__orig_bases__",
        "__parameters__",
        "__qualname__",
        "__static_attributes__",
        "name",
    }
)
"""What a class body may hold and still override nothing; ``name`` is set by ``register``."""


def register(target: type, replacement: Any) -> Any:
    """Replace ``target`` by ``replacement``, and return the latter.

    Raises:
        TypeError: ``replacement`` is not a class derived from ``target``.
        ValueError: ``target`` is replaced already, by a class that ``replacement`` doesn't extend.
    """
    if not (isinstance(replacement, type) and issubclass(replacement, target)):
        name = getattr(replacement, "__qualname__", repr(replacement))
        raise TypeError(f"register_oot: {name} must be a subclass of {target.__qualname__}")
    if replacement is target:
        raise TypeError(f"register_oot: {target.__qualname__} cannot replace itself")
    known = _replacements.get(target)
    same = known is not None and (known.__module__, known.__qualname__) == (
        replacement.__module__,
        replacement.__qualname__,
    )
    if known is not None and not same and not issubclass(replacement, known):
        raise ValueError(
            f"register_oot: {target.__qualname__} is replaced by "
            f"{known.__module__}.{known.__qualname__} already"
        )
    _replacements[target] = replacement
    _resolved.clear()
    return replacement


def unregister(target: type) -> None:
    """Undo :func:`register`; instances that exist already stay what they are."""
    _replacements.pop(target, None)
    _resolved.clear()


def resolve(cls: type) -> type:
    """The class to build where ``cls`` is asked for."""
    if not _replacements:
        return cls
    found = _resolved.get(cls)
    if found is None:
        found = _resolved[cls] = _resolve(cls)
    return found


def _resolve(cls: type) -> type:
    for base in cls.__mro__:
        replacement = _replacements.get(base)
        if replacement is not None:
            if issubclass(cls, replacement):
                return cls
            if base is cls:
                return resolve(replacement)
            return _combine(cls, replacement)
        if not _NO_OVERRIDE.issuperset(vars(base)):
            return cls
    return cls


def _combine(cls: type, replacement: type) -> type:
    """``cls``, which overrides nothing, with the methods of ``replacement``."""
    body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    combined = type(cls)(cls.__name__, (cls, replacement), body)
    _origins[combined] = cls
    return combined


def origin(cls: type) -> type:
    """The importable class that a combined class was made from; any other class itself."""
    return _origins.get(cls, cls)


def rebuild(cls: Any) -> Any:
    """An empty instance for unpickling."""
    return cls.__new__(cls)
