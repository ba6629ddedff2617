# SPDX-License-Identifier: Apache-2.0
"""The references under names that a C++ kernel can call: ``torch.ops.vllm_ops_native.<name>``.

A kernel that doesn't take a call after all, because of its dtype for instance, can't hand it back
to the dispatcher, which would choose the same kernel again. It calls the reference here instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ._call import arguments_error
from ._define import OPS, Op

NAMESPACE = "vllm_ops_native"
_HOLDER = "_vllm_ops_library"


def _without_none(native: Callable[..., Any]) -> Callable[..., Any]:
    """An empty tensor in place of None: the stable ABI can't take an optional output from the
    dispatcher (torch 2.13)."""

    def run(*args: Any) -> Any:
        outputs = native(*args)
        like = next(value for value in args if isinstance(value, Tensor))
        return tuple(like.new_empty(0) if value is None else value for value in outputs)

    return run


def _checked(op: Op) -> Callable[..., Any]:
    """A kernel hands the call over before its own checks. It cannot pass the message on, so this
    one decides only; who called the operator through Python gets the sentence from its checks."""

    def run(*args: Any) -> Any:
        wrong = arguments_error(op.check, op.check_values, args)
        if wrong is not None:
            raise RuntimeError(str(wrong))
        return op.native(*args)

    return run


def provide(names: Iterable[str]) -> None:
    """Define the references of these operators. Again is harmless."""
    holder = vars(torch.ops.vllm_ops_native)
    library = holder.setdefault(_HOLDER, torch.library.Library(NAMESPACE, "FRAGMENT"))
    for name in names:
        if hasattr(torch.ops.vllm_ops_native, name):
            continue
        op = OPS[name]
        schema = str(op.overload._schema).removeprefix("vllm_ops::")
        arguments, returns = schema.rsplit(" -> ", 1)
        plain = re.sub(r"Tensor\?", "Tensor", returns)
        library.define(f"{arguments} -> {plain}")
        native = _checked(op)
        native = native if plain == returns else _without_none(native)
        library.impl(name, native, "CompositeExplicitAutograd")
