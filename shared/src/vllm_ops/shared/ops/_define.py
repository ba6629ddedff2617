# SPDX-License-Identifier: Apache-2.0
"""How an operator comes into being: schema, native kernel, fake kernel, gradient, public call.

Schemas belong to the torch library ``vllm_ops`` and are defined here, once. Device packages only
add kernels under their own dispatch keys, so one captured graph runs on every device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NAMESPACE = "vllm_ops"
_HOLDER = "_vllm_ops_library"


def _library() -> torch.library.Library:
    """The one library object of this process.

    It lives on the operator namespace rather than in this module, so that a module that is removed
    from ``sys.modules`` and imported again finds its schemas defined instead of defining them
    twice.
    """
    holder = vars(torch.ops.vllm_ops)
    if _HOLDER not in holder:
        holder[_HOLDER] = torch.library.Library(NAMESPACE, "FRAGMENT")
    library: torch.library.Library = holder[_HOLDER]
    return library


@contextmanager
def _as_runtime_error() -> Iterator[None]:
    """What a Python layer reports as TypeError or ValueError, ``torch.ops`` reports as
    RuntimeError."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        raise RuntimeError(str(error)) from None


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

    def checked_native(self, *args: Any) -> Any:
        """The reference behind the operator's checks: what a layer's ``forward_native`` runs."""
        self.check(*args)
        if self.check_values is not None and not torch.compiler.is_compiling():
            self.check_values(*args)
        return self.native(*args)


OPS: dict[str, Op] = {}
"""Every operator by name, in the order of definition."""


def _register_gradient(name: str, native: Callable[..., Any], library: Any) -> None:
    """The kernel forward, with a backward that differentiates the reference.

    Inputs are aliased before the reference runs, so that an input that was computed from another
    input does not collect that one's gradient as well; with ``create_graph`` the aliases stay
    attached, which makes second derivatives right too.
    """

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.places = [i for i, value in enumerate(inputs) if isinstance(value, Tensor)]
        ctx.save_for_backward(*(inputs[i] for i in ctx.places))
        ctx.others = [None if isinstance(value, Tensor) else value for value in inputs]

    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        again = torch.is_grad_enabled()
        args = list(ctx.others)
        wanted: list[int] = []
        with torch.enable_grad():
            for place, saved in zip(ctx.places, ctx.saved_tensors, strict=True):
                args[place] = saved
                if ctx.needs_input_grad[place]:
                    wanted.append(place)
                    args[place] = saved.view_as(saved) if again else saved.detach().requires_grad_()
            outputs = native(*args)
            if isinstance(outputs, Tensor):
                outputs = (outputs,)
            pairs = [
                (out, grad)
                for out, grad in zip(outputs, grads, strict=True)
                if out is not None and grad is not None and out.requires_grad
            ]
            found: tuple[Tensor | None, ...] = (None,) * len(wanted)
            if pairs:
                found = torch.autograd.grad(
                    [out for out, _ in pairs],
                    [args[place] for place in wanted],
                    [grad for _, grad in pairs],
                    allow_unused=True,
                    create_graph=again,
                )
        result: list[Tensor | None] = [None] * len(args)
        for place, grad in zip(wanted, found, strict=True):
            result[place] = grad
        return tuple(result)

    torch.library.register_autograd(
        f"{NAMESPACE}::{name}", backward, setup_context=setup_context, lib=library
    )


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


def _make_call(
    overload: torch._ops.OpOverload,
    check: Callable[..., None],
    check_values: Callable[..., None] | None,
) -> Callable[..., Any]:
    is_inference = torch.is_inference_mode_enabled
    is_grad = torch.is_grad_enabled
    is_compiling = torch.compiler.is_compiling
    below_autograd = torch._C._AutoDispatchBelowAutograd

    def call(*args: Any) -> Any:
        # Where no gradient can be wanted, the Python autograd wrapper of a torch.library operator
        # is pure cost (12 us a call under no_grad), so it is stepped over.
        try:
            if is_compiling() or is_inference() or is_grad():
                return overload(*args)
            with below_autograd():
                return overload(*args)
        except (RuntimeError, TypeError):
            # The happy path checks nothing in Python. Only a call that failed is looked at again,
            # for the precise error type and message.
            if not is_compiling():
                check(*args)
                if check_values is not None:
                    check_values(*args)
            raise

    return call


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
        differentiable: False for in-place operators, which have no gradient.
    """
    name = schema.split("(", 1)[0]
    native = _contiguous(native)
    library = _library()
    qualified = f"{NAMESPACE}::{name}"
    if not hasattr(torch.ops.vllm_ops, name):
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))

        def kernel(*args: Any) -> Any:
            with _as_runtime_error():
                check(*args)
                if check_values is not None:
                    check_values(*args)
                return native(*args)

        def fake_kernel(*args: Any) -> Any:
            with _as_runtime_error():
                check(*args)
            return fake(*args)

        library.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(qualified, fake_kernel, lib=library)
        if differentiable:
            _register_gradient(name, native, library)
    overload = getattr(torch.ops.vllm_ops, name).default
    op = Op(name, overload, native, check, check_values, _make_call(overload, check, check_values))
    OPS[name] = op
    return op
