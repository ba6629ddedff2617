# SPDX-License-Identifier: Apache-2.0
"""Kernels written in Python, for backends whose device is programmed from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import _lazy
from ._call import arguments_error
from ._define import NAMESPACE, OPS, library

_KERNELS = "_vllm_ops_kernels"


def register_kernel(op: str, dispatch_key: str, kernel: Callable[..., Any]) -> None:
    """Register a kernel for one operator under a dispatch key.

    The kernel takes the arguments of the schema, with its defaults: torch drops an argument that
    equals its default before it calls Python. It is called with arguments that have been checked.
    Registering again replaces the kernel, so a module that does it can be imported twice.

    Args:
        op: the operator's name.
        dispatch_key: ``"XLA"``, ``"HPU"``, ``"PrivateUse1"``, ...

    Raises:
        ImportError: somebody else has registered a kernel for that operator and key.
        ValueError: there is no such operator.
    """
    if op not in OPS:
        raise ValueError(f"register_kernel: unknown operator {op!r}")
    registered = vars(library()).setdefault(_KERNELS, {})
    known = (op, dispatch_key) in registered
    registered_at_all = torch._C._dispatch_has_kernel_for_dispatch_key(
        f"{NAMESPACE}::{op}", dispatch_key
    )
    if registered_at_all and not known:
        raise ImportError(f"another package has registered {op} under {dispatch_key}")
    registered[op, dispatch_key] = kernel
    if known:
        return
    run = _dispatching(op, dispatch_key, registered)
    library().impl(op, run, dispatch_key)
    if dispatch_key == "XLA" and OPS[op].in_place:
        # torch-xla's tensors reach their own key through functionalization alone.
        library().impl(op, run, "Functionalize")


def _dispatching(
    op: str, dispatch_key: str, registered: dict[tuple[str, str], Callable[..., Any]]
) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        wrong = arguments_error(OPS[op].check, OPS[op].check_values, args)
        if wrong is not None:
            raise RuntimeError(str(wrong))
        kernel = registered[op, dispatch_key]
        return kernel(*args) if OPS[op].in_place else _lazy.run(kernel, args)

    return run


def register_in_place(op: str, dispatch_key: str) -> None:
    """Register an operator whose name ends in ``_`` as its functional twin, whose kernel is
    registered too, and copies into the arguments.

    Args, Raises: those of :func:`register_kernel`.
    """
    twin = OPS.get(op.removesuffix("_"))
    if op not in OPS or twin is None or not OPS[op].in_place:
        raise ValueError(f"register_in_place: {op!r} is not an in-place operator")
    register_kernel(op, dispatch_key, _lazy.write_back(OPS[op], twin))
