# SPDX-License-Identifier: Apache-2.0
"""The TPU backend of vllm_ops: Pallas kernels and XLA expressions, called through torch-xla.

Importing this module loads nothing, neither torch-xla nor JAX. :func:`load` registers the kernels
under torch's ``XLA`` dispatch key; ``vllm_ops.shared`` calls it when the first module is built.
The kernels themselves are in ``vllm_ops.tpu.kernels``, which needs JAX alone.

Nothing here has run on a TPU: the tests run the kernels interpreted on torch-xla's CPU client, and
compile them for five generations.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from typing import Any, Final

__all__ = [
    "INTERPRET",
    "available",
    "device_type",
    "dispatch_key",
    "evidence",
    "info",
    "limits",
    "load",
    "name",
    "ops_provided",
    "version",
]

name: Final = "tpu"
device_type: Final = "xla"
dispatch_key: Final = "XLA"

evidence: str = "device"
"""``"emulated"`` once loaded over torch-xla's CPU client."""

INTERPRET: Final = "VLLM_OPS_TPU_INTERPRET"
"""Set to 1, this variable takes torch-xla's CPU client for a TPU: the kernels run interpreted, for
tests. Otherwise a machine without a TPU goes on to the next backend."""

_INSTALL: Final = "pip install 'vllm-ops-tpu[xla]'"

_ops: frozenset[str] = frozenset()
_platform: str = "not loaded"


def version() -> str:
    """The version of the installed distribution."""
    return importlib.metadata.version("vllm-ops-tpu")


def available() -> tuple[bool, str]:
    """Whether torch-xla drives a TPU here, and the reason in words. Imports ``torch_xla``.

    Raises:
        ImportError: torch-xla is installed, and it or JAX cannot be imported.
    """
    missing = [part for part in ("torch_xla", "jax") if importlib.util.find_spec(part) is None]
    if "torch_xla" in missing:
        return False, f"{' and '.join(missing)} not installed: {_INSTALL}"
    if missing:
        raise ImportError(f"torch_xla is installed, and jax, which it needs, is not: {_INSTALL}")
    try:
        import torch_xla.runtime

        client = torch_xla.runtime.device_type()
    except Exception as error:  # whatever a damaged installation raises
        raise ImportError(
            f"torch_xla is installed and cannot be used: {type(error).__name__}: {error}"
        ) from error
    if client == "TPU":
        return True, "torch_xla drives a TPU"
    if os.environ.get(INTERPRET) == "1":
        return True, f"torch_xla's {client} client, kernels interpreted ({INTERPRET}=1)"
    return False, f"torch_xla drives no TPU: its client is {client} ({INTERPRET}=1 interprets)"


def load() -> None:
    """Register the kernels with torch. Calling it again does nothing.

    Raises:
        ImportError: JAX cannot be imported.
    """
    global _ops, _platform, evidence
    if _ops:
        return
    from . import _bridge, xla

    _platform = _bridge.start()
    if _platform != "tpu":
        evidence = "emulated"
    _ops = xla.register(dispatch_key)


def ops_provided() -> frozenset[str]:
    """The names of the operators that have a kernel; :func:`limits` says which of their calls go
    to the reference."""
    return _ops


def limits(op: str) -> str | None:
    """Which calls of an operator the kernel hands to the reference, in words."""
    from ._limits import LIMITS

    return LIMITS.get(op)


def info() -> dict[str, str]:
    """For ``vllm-ops info``: the platform that kernels are lowered for, and JAX's version."""
    found: dict[str, Any] = {"platform": _platform}
    if importlib.util.find_spec("jax") is not None:
        found["jax"] = importlib.metadata.version("jax")
    return found
