# SPDX-License-Identifier: Apache-2.0
"""Copies of functions in which a global name means something else."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def rebind(function: Callable[..., Any], **names: Any) -> types.FunctionType:
    """A copy of ``function``, under its decorators, in which global names mean something else.

    Raises:
        TypeError: this isn't Python code, or a decorator keeps it where it cannot be replaced.
    """
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"{function!r} is not a Python function")
    inner = getattr(function, "__wrapped__", None)
    closure = function.__closure__
    if inner is None:
        scope = {**function.__globals__, **names}
        # torch.compile looks the globals of a named module up in that module, not here.
        scope.pop("__name__", None)
    else:
        scope = function.__globals__
        rebound = rebind(inner, **names)
        held = [cell.cell_contents is inner for cell in closure or ()]
        if not any(held):
            raise TypeError(f"a decorator of {function.__qualname__} hides what it wraps")
        closure = tuple(
            types.CellType(rebound) if here else cell
            for here, cell in zip(held, closure or (), strict=True)
        )
    made = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    made.__dict__.update(vars(function))
    if inner is not None:
        made.__wrapped__ = rebound  # type: ignore[attr-defined]
    return made


def innermost(function: Any) -> types.FunctionType | None:
    """The function below its decorators, or None where that isn't Python code."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function if isinstance(function, types.FunctionType) else None
