# SPDX-License-Identifier: Apache-2.0
"""The call into an operator that layers and the functional API make: as little Python as possible.

Measured on a 2-core AMD EPYC with a kernel that does nothing: ``OpOverload.__call__`` is a Python
function that costs 0.2 us around the C++ call; the Python autograd wrapper that ``torch.library``
registers costs 3 us under ``no_grad``, and stepping over it 0.3 us.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from ._gradient import bump_versions, make_differentiable, mutated_places


def arguments_error(
    check: Callable[..., None],
    check_values: Callable[..., None] | None,
    args: tuple[Any, ...],
) -> Exception | None:
    """The error that the checks of an operator raise for ``args``, if any."""
    try:
        check(*args)
        if check_values is not None:
            check_values(*args)
    except (TypeError, ValueError, IndexError) as error:
        return error
    return None


def make_call(
    overload: torch._ops.OpOverload,
    native: Callable[..., Any],
    check: Callable[..., None],
    check_values: Callable[..., None] | None,
) -> Callable[..., Any]:
    """The public call of one operator, positional arguments only."""
    kernel = getattr(overload, "_op", overload)
    is_inference = torch.is_inference_mode_enabled
    is_grad_enabled = torch.is_grad_enabled
    requires_grad = torch._C._any_requires_grad
    in_functorch = torch._C._are_functorch_transforms_active
    below_autograd = torch._C._AutoDispatchBelowAutograd
    compiler = torch.compiler
    mutated = mutated_places(overload)
    # In-place operators go through the dispatcher, whose autograd kernel refuses the call.
    with_gradient = kernel if mutated else make_differentiable(kernel, native)

    def call(*args: Any) -> Any:
        try:
            if is_inference():
                return kernel(*args)
            return outside_inference(args)
        except (RuntimeError, TypeError):
            # The happy path checks nothing in Python. Only a call that failed is looked at again,
            # for the precise error type and message.
            wrong = arguments_error(check, check_values, args)
            if wrong is not None:
                raise wrong from None
            raise

    def outside_inference(args: tuple[Any, ...]) -> Any:
        if getattr(compiler, "_is_compiling_flag", False):
            # Non-strict export runs this code; its graph must hold nothing but the operator.
            return kernel(*args)
        if forward_ad._current_level >= 0 or in_functorch():
            # A kernel would drop forward-mode tangents, and the autograd functions that
            # torch.library makes refuse torch.func; the reference takes both.
            check(*args)
            if check_values is not None:
                # vmap hides the values of what it batches; the reference turns those into NaN.
                with contextlib.suppress(RuntimeError):
                    check_values(*args)
            return native(*args)
        if is_grad_enabled() and requires_grad(*args):
            return with_gradient(*args)
        # No gradient can be wanted, so the autograd wrapper is stepped over.
        if not mutated:
            with below_autograd():
                return kernel(*args)
        with below_autograd():
            kernel(*args)
        bump_versions(args, mutated)
        return None

    def traced(*args: Any) -> Any:
        return overload(*args)

    # Dynamo inlines this function in the place of ``call``: it cannot trace the questions above,
    # and a captured graph must hold nothing but the operator.
    call._torchdynamo_inline = traced  # type: ignore[attr-defined]
    return call
