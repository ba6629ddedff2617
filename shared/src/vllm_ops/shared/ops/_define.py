# SPDX-License-Identifier: Apache-2.0
"""How an operator comes into being: schema, native kernel, fake kernel, gradient, public call.

Schemas belong to the torch library ``vllm_ops`` and are defined here, once. Device packages only
add kernels under their own dispatch keys, so one captured graph runs on every device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import _lazy
from ._call import arguments_error, make_call
from ._gradient import register_gradient, register_in_place

NAMESPACE = "vllm_ops"
_HOLDER = "_vllm_ops_library"


def library() -> torch.library.Library:
    """The one library object of this process.

    It lives on the operator namespace rather than in this module, so that a module that is removed
    from ``sys.modules`` and imported again finds its schemas defined instead of defining them
    twice.
    """
    holder = vars(torch.ops.vllm_ops)
    if _HOLDER not in holder:
        holder[_HOLDER] = torch.library.Library(NAMESPACE, "FRAGMENT")
    found: torch.library.Library = holder[_HOLDER]
    return found


@dataclass(frozen=True)
class Op:
    """One operator.

    Attributes:
        name: its one name, everywhere.
        overload: ``torch.ops.vllm_ops.<name>.default``.
        native: the reference, differentiable plain torch, which checks nothing.
        check: raises TypeError or ValueError for arguments that the operator does not take.
        check_values: the part of the check that reads tensor data; only ever run on CPU tensors.
        call: the operator as layers and the functional API call it.
    """

    name: str
    overload: torch._ops.OpOverload
    native: Callable[..., Any]
    check: Callable[..., None]
    check_values: Callable[..., None] | None
    call: Callable[..., Any]

    @property
    def in_place(self) -> bool:
        """Whether the operator writes into its arguments; its name then ends in ``_``."""
        return self.overload._schema.is_mutable

    def checked_native(self, *args: Any) -> Any:
        """The reference behind the operator's checks: what a layer's ``forward_native`` runs."""
        self.check(*args)
        if self.check_values is not None and not torch.compiler.is_compiling():
            self.check_values(*args)
        return self.native(*args)


OPS: dict[str, Op] = {}
"""Every operator by name, in the order of definition."""


def _contiguous(native: Callable[..., Any]) -> Callable[..., Any]:
    """Outputs are contiguous on every path; plain torch would keep the strides of its inputs."""

    @functools.wraps(native)
    def run(*args: Any) -> Any:
        outputs = native(*args)
        if isinstance(outputs, Tensor):
            return outputs.contiguous()
        if outputs is None:
            return None
        return tuple(None if value is None else value.contiguous() for value in outputs)

    return run


def define(
    schema: str,
    *,
    native: Callable[..., Any],
    check: Callable[..., None],
    fake: Callable[..., Any],
    check_values: Callable[..., None] | None = None,
    differentiable: bool = True,
) -> Op:
    """Define one operator in the library ``vllm_ops``.

    ``native``, ``check``, ``check_values`` and ``fake`` take the schema's arguments, with the same
    defaults (torch drops arguments that equal the schema's default before it calls a Python
    kernel).
    The native reference is registered as ``CompositeExplicitAutograd``: it serves every device that
    has no kernel of its own, and stays one node in a captured graph.

    Args:
        schema: in torch's schema language, with the defaults that users see.
        fake: returns empty outputs of the right shape, dtype and strides; runs after ``check``.
        differentiable: False for in-place operators, which have no gradient and refuse to run
        where one would be recorded.
    """
    name = schema.split("(", 1)[0]
    native = _contiguous(native)
    if not hasattr(torch.ops.vllm_ops, name):
        _register(schema, name, native, check, fake, check_values, differentiable)
    overload = getattr(torch.ops.vllm_ops, name).default
    call = make_call(overload, native, check, check_values)
    op = Op(name, overload, native, check, check_values, call)
    OPS[name] = op
    return op


def _register(
    schema: str,
    name: str,
    native: Callable[..., Any],
    check: Callable[..., None],
    fake: Callable[..., Any],
    check_values: Callable[..., None] | None,
    differentiable: bool,
) -> None:
    def kernel(*args: Any) -> Any:
        wrong = arguments_error(check, check_values, args)
        if wrong is not None:
            raise RuntimeError(str(wrong))
        return _lazy.run(native, args)

    def fake_kernel(*args: Any) -> Any:
        wrong = arguments_error(check, None, args)
        if wrong is not None:
            raise RuntimeError(str(wrong))
        return fake(*args)

    registry = library()
    registry.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    registry.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake_kernel, lib=registry)
    overload = getattr(torch.ops.vllm_ops, name).default
    if differentiable:
        register_gradient(f"{NAMESPACE}::{name}", native, registry)
    else:
        register_in_place(overload, registry)
