# SPDX-License-Identifier: Apache-2.0
"""Gradients: the kernel runs forward, and the backward differentiates the reference.

A parameter requires a gradient by default, so the native path for every input that does would take
the kernel away from each model that is called without ``no_grad``. This way it keeps its kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def mutated_places(overload: torch._ops.OpOverload) -> tuple[int, ...]:
    """The positions of the arguments that an operator writes into."""
    return tuple(
        place
        for place, argument in enumerate(overload._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def bump_versions(args: tuple[Any, ...], places: tuple[int, ...]) -> None:
    """Tell autograd that these arguments were written: kernels write through raw pointers, and a
    tensor that was saved for a backward pass must be found changed."""
    for place in places:
        if place < len(args) and args[place] is not None:
            torch.autograd.graph.increment_version(args[place])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.places = [i for i, value in enumerate(inputs) if isinstance(value, Tensor)]
    ctx.save_for_backward(*(inputs[i] for i in ctx.places))
    ctx.others = [None if isinstance(value, Tensor) else value for value in inputs]


def _make_backward(native: Callable[..., Any]) -> Callable[..., tuple[Tensor | None, ...]]:
    """The gradient of ``native``.

    Inputs are aliased before the reference runs, so that an input that was computed from another
    input does not collect that one's gradient as well; with ``create_graph`` the aliases stay
    attached, which makes second derivatives right too.
    """

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

    return backward


def register_gradient(qualified: str, native: Callable[..., Any], library: Any) -> None:
    """Register the gradient of ``native`` as the gradient of the operator."""
    torch.library.register_autograd(
        qualified, _make_backward(native), setup_context=_setup_context, lib=library
    )


def make_differentiable(
    kernel: Callable[..., Any], native: Callable[..., Any]
) -> Callable[..., Any]:
    """``kernel`` with the gradient of ``native``, for eager calls: the same as what
    :func:`register_gradient` registers, without the 40 us that torch.library's general wrapper
    takes around it."""
    below_autograd = torch._C._AutoDispatchBelowAutograd

    class WithGradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.set_materialize_grads(False)
            with below_autograd():
                output = kernel(*args)
            _setup_context(ctx, args, output)
            return output

        backward = staticmethod(_make_backward(native))

    apply: Callable[..., Any] = WithGradient.apply
    return apply


def register_in_place(overload: torch._ops.OpOverload, library: torch.library.Library) -> None:
    """Autograd for an operator that writes into its arguments: it refuses to lose a gradient, and
    counts the write, the same on every device."""
    mutated = mutated_places(overload)
    name = overload._schema.name.split("::", 1)[1]
    arguments = [argument.name for argument in overload._schema.arguments]

    def autograd(keys: torch._C.DispatchKeySet, *args: Any) -> None:
        if torch.is_grad_enabled():
            for argument, value in zip(arguments, args, strict=False):
                if isinstance(value, Tensor) and value.requires_grad:
                    raise RuntimeError(
                        f"{name}: {argument} must not require a gradient, an in-place operator has "
                        f"none; use {name.removesuffix('_')}, or torch.no_grad()"
                    )
        with torch._C._AutoDispatchBelowADInplaceOrView():
            overload.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args)
        bump_versions(args, mutated)

    def negative(*args: Any) -> None:
        # Views whose sign is a bit, such as the imaginary part of a conjugate. torch's own fallback
        # for them expects that an operator returns what it writes.
        plain = [value.resolve_neg() if isinstance(value, Tensor) else value for value in args]
        overload(*plain)
        for place in mutated:
            if place < len(args) and plain[place] is not args[place]:
                args[place].copy_(plain[place])

    library.impl(name, autograd, "Autograd", with_keyset=True)
    library.impl(name, negative, "Negative")
