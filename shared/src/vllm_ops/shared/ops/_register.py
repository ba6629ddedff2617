# SPDX-License-Identifier: Apache-2.0
"""Kernels written in Python, for backends whose device is programmed from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
    if not known:
        library().impl(op, _dispatching(op, dispatch_key, registered), dispatch_key)


def _dispatching(
    op: str, dispatch_key: str, registered: dict[tuple[str, str], Callable[..., Any]]
) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        wrong = arguments_error(OPS[op].check, OPS[op].check_values, args)
        if wrong is not None:
            raise RuntimeError(str(wrong))
        return registered[op, dispatch_key](*args)

    return run
