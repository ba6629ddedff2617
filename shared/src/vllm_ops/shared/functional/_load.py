# SPDX-License-Identifier: Apache-2.0
"""The kernels are loaded by the first call of a function, as by the first layer that is built, and
not at import. Later calls know nothing of it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from .. import backends, policy
from ..decision import DispatchError
from ..ops import OPS


def load_at_first_call(*modules: types.ModuleType) -> None:
    """Put a function that loads the kernels in the place of each operator's call in ``modules``,
    until one of them is called."""
    calls = {id(op.call): op for op in OPS.values()}
    places = [
        (vars(module), name, value)
        for module in modules
        for name, value in vars(module).items()
        if id(value) in calls
    ]

    def load(op: str) -> None:
        chosen = backends.choose()
        asked = policy.current_device()
        if policy.is_strict() and not chosen.usable and asked != backends.NATIVE:
            raise DispatchError(
                f"{op}: no kernels: {chosen.reason} ({policy.ENV_STRICT} forbids the native path)"
            )
        for namespace, name, call in places:
            namespace[name] = call

    def loading(op: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def first(*args: Any) -> Any:
            # A capture can't load a library; it leaves that to the next call.
            if not torch.compiler.is_compiling():
                load(op)
            return call(*args)

        first._torchdynamo_inline = call._torchdynamo_inline  # type: ignore[attr-defined]
        return first

    for namespace, name, call in places:
        namespace[name] = loading(calls[id(call)].name, call)
