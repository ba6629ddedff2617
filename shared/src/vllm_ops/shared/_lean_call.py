# SPDX-License-Identifier: Apache-2.0
"""``CustomOp.__call__``: straight to the chosen method where nobody is looking.

``nn.Module.__call__`` costs 0.6 us a call on a 2-core AMD EPYC, most of it in attribute reads that
go through ``nn.Module.__getattr__``. This one costs 0.25 us. It asks the same questions, of the
module's dictionary: are there hooks, of this module or of all? Is ``forward`` replaced, on the
instance or on the class? Was the module compiled in place, is something tracing or exporting it,
has a tracer patched ``nn.Module.__call__``? If so, ``nn.Module.__call__`` takes over.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch.compiler
import torch.jit._trace
from torch import nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)

Observer = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]

observers: list[Observer] = []
"""Called before each eager call of a CustomOp with the module and its arguments, those by position
and those by name; see ``count_calls``."""

_Module = nn.Module
_module_call = nn.Module.__call__
# Not part of torch's public interface; without it, only the names of modules in a graph of
# non-strict export depend on the check of nn.Module.__call__ below.
_compiler: Any = (
    torch.compiler
    if hasattr(torch.compiler, "_is_compiling_flag")
    else types.SimpleNamespace(_is_compiling_flag=False)
)
_jit_trace = torch.jit._trace
_dispatched_forward: Any = None


def call(*args: Any, **kwargs: Any) -> Any:
    """``self`` is ``args[0]``: it is passed on without building another tuple."""
    state = args[0].__dict__
    if (
        state["_forward_hooks"]
        or state["_forward_pre_hooks"]
        or state["_backward_hooks"]
        or state["_backward_pre_hooks"]
        or _global_forward_hooks
        or _global_forward_pre_hooks
        or _global_backward_hooks
        or _global_backward_pre_hooks
        or "forward" in state
        or "_compiled_call_impl" in state
        or type(args[0]).forward is not _dispatched_forward
        or _Module.__call__ is not _module_call
        or _compiler._is_compiling_flag
        or _jit_trace._trace_module_map is not None
        or observers
    ):
        return _full_call(*args, **kwargs)
    return state["_forward_function"](*args, **kwargs)


def _full_call(module: Any, *args: Any, **kwargs: Any) -> Any:
    if not _compiler._is_compiling_flag:
        for observe in tuple(observers):
            observe(module, args, kwargs)
    return _Module.__call__(module, *args, **kwargs)


def install(cls: Any, forward: Callable[..., Any]) -> None:
    """Finish ``cls``, whose ``__call__`` is :func:`call` and whose ``forward`` runs the method.

    When a model is compiled, Dynamo inlines ``nn.Module.__call__`` in the place of this function,
    and when a layer is compiled by itself, it begins with the frame of the chosen method: the code
    of ``call`` and ``forward`` is common to all layers, and Dynamo's recompile limit counts per
    code object.
    """
    global _dispatched_forward
    _dispatched_forward = forward
    call._torchdynamo_inline = _module_call  # type: ignore[attr-defined]
    # torch._dynamo.skip would do, at the price of importing all of Dynamo.
    from torch._C._dynamo import eval_frame

    skip = eval_frame._FrameExecStrategy(
        eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
    )
    for function in (call, _full_call, forward):
        eval_frame.set_code_exec_strategy(function.__code__, skip)
