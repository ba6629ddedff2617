# SPDX-License-Identifier: Apache-2.0
"""JAX functions on torch-xla's tensors.

What ``torch_xla.core.xla_builder.call_jax`` does, without ``torchax`` and its dependencies, and
with a cache by what determines a computation: the function, its static arguments, shapes and
dtypes. A function is traced once for each, lowered for the platform that torch-xla drives, and
enters the graph as a computation that XLA compiles with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_functions: dict[tuple[Any, ...], Callable[[list[Tensor]], list[Tensor]]] = {}

_platform: str | None = None
"""None before :func:`start`; then ``"tpu"`` or ``"cpu"``."""


def start() -> str:
    """Initialise torch-xla's client before JAX is imported, which would lock the TPU.

    Returns:
        the platform: ``"tpu"`` or ``"cpu"``.

    Raises:
        ImportError: JAX is not installed, or older than the kernels need.
    """
    global _platform
    import torch_xla
    from torch_xla import runtime

    torch_xla._XLAC._init_computation_client()
    try:
        import jax
        from jax.experimental import pallas  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"the TPU kernels need JAX beside torch_xla {torch_xla.__version__}, and {error}: "
            "pip install jax==0.7.1 jaxlib==0.7.1"
        ) from error
    del jax
    _platform = "tpu" if runtime.device_type() == "TPU" else "cpu"
    return _platform


def jax_dtype(dtype: torch.dtype) -> Any:
    import jax.numpy as jnp

    return getattr(jnp, str(dtype).removeprefix("torch."))


def _lower(kernel: Callable[..., Any], args: Sequence[Tensor | None], static: Any) -> Any:
    import jax
    import numpy as np
    from jax.experimental import enable_x64
    from torch_xla._internal.jax_workarounds import jax_env_context
    from torch_xla.core import xla_builder

    present = [index for index, value in enumerate(args) if value is not None]
    shapes = [
        jax.ShapeDtypeStruct(tuple(value.shape), np.dtype(jax_dtype(value.dtype)))
        for value in args
        if value is not None
    ]

    def function(*arrays: Any) -> tuple[Any, ...]:
        given: list[Any] = [None] * len(args)
        for index, array in zip(present, arrays, strict=True):
            given[index] = array
        outputs = kernel(*given, **static)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    # JAX would make fp32 of fp64.
    wide = any(shape.dtype.itemsize == 8 for shape in shapes)
    with jax_env_context(), enable_x64(wide or jax.config.jax_enable_x64):
        traced = jax.jit(function, keep_unused=True).trace(*shapes)
        lowered = traced.lower(lowering_platforms=(_platform,))
        proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    name = f"vllm_ops_{kernel.__name__}"
    computation = xla_builder.computation_from_module_proto(name, proto)
    return xla_builder.xla_computation_as_func(computation, name)


def call(kernel: Callable[..., Any], *args: Tensor | None, **static: Any) -> list[Tensor]:
    """The outputs of ``kernel(*args, **static)``, recorded in torch-xla's graph.

    Args:
        kernel: a module-level function of ``kernels``.
        args: tensors of torch-xla, or None.
        static: hashable keyword arguments.
    """
    specs = tuple(None if value is None else (value.dtype, *value.shape) for value in args)
    key = (kernel, specs, tuple(sorted(static.items())), _platform)
    function = _functions.get(key)
    if function is None:
        function = _functions[key] = _lower(kernel, args, static)
    return list(function([value for value in args if value is not None]))


def pallas(kernel: Callable[..., Any], *args: Tensor | None, **static: Any) -> list[Tensor]:
    """:func:`call` for a Pallas kernel: Mosaic on a TPU, interpreted on the CPU client, on which a
    real one would hang."""
    return call(kernel, *args, interpret=_platform != "tpu", **static)
