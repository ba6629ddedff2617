# SPDX-License-Identifier: Apache-2.0
"""Operators on torch-xla's tensors, which record a graph instead of computing.

torch-xla takes views (``chunk``, ``x[..., ::2]``) and writes from torch's functionalization. The
dispatcher has left that layer when it reaches an implementation: there a view is an ``as_strided``,
which XLA lowers to a gather and refuses on empty tensors. So the layer is entered again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ._gradient import mutated_places

if TYPE_CHECKING:
    from ._define import Op


def _is_bare(value: Any) -> bool:
    return (
        type(value) is Tensor
        and value.device.type == "xla"
        and not torch._is_functional_tensor(value)
    )


def _wrap(value: Any) -> Any:
    return torch._to_functional_tensor(value) if _is_bare(value) else value


def _unwrap(value: Any) -> Any:
    if not isinstance(value, Tensor) or not torch._is_functional_tensor(value):
        return value
    torch._sync(value)  # type: ignore[attr-defined, no-untyped-call]
    return torch._from_functional_tensor(value)


def run(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """``function(*args)``; under functionalization where an argument is a tensor of torch-xla that
    has left it. ``function`` must not write into its arguments."""
    if not any(map(_is_bare, args)):
        return function(*args)
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.Functionalize, False):
        return pytree.tree_map(_unwrap, function(*map(_wrap, args)))


def write_back(op: Op, twin: Op) -> Callable[..., None]:
    """An in-place operator as its functional twin and copies: functionalization refuses a schema
    that writes, and understands ``copy_``."""
    places = mutated_places(op.overload)

    def kernel(*args: Any) -> None:
        outputs = twin.overload(*args)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        for place, output in zip(places, outputs, strict=True):
            if output is not None:
                args[place].copy_(output)

    return kernel
