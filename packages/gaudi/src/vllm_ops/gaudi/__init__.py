# SPDX-License-Identifier: Apache-2.0
"""The Gaudi backend of vllm_ops: Python kernels over Habana's fused operators, and TPC kernels.

Importing this module loads nothing. :func:`load` registers the kernels under torch's ``HPU``
dispatch key; ``vllm_ops.shared`` calls it when the first module is built.

Nothing here has run on a Gaudi: the tests run the Python kernels over a stand-in for
``habana_frameworks``, and the sources of the TPC kernels through an emulator.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import Any, Final

__all__ = [
    "available",
    "device_type",
    "dispatch_key",
    "evidence",
    "info",
    "load",
    "name",
    "ops_provided",
    "version",
]

name: Final = "gaudi"
device_type: str = "hpu"
dispatch_key: str = "HPU"

evidence: Final = "emulated"
"""Stays until ``vllm-ops parity gaudi`` has passed on a Gaudi."""

_HPEX_OPS: Final = frozenset(
    {
        "rms_norm",
        "rms_norm_",
        "fused_add_rms_norm",
        "fused_add_rms_norm_",
        "rotary_embedding",
        "rotary_embedding_",
        "multimodal_rotary_embedding",
        "apply_rotary_emb",
        "qk_norm_rope",
    }
)
_TPC_OPS: Final = frozenset({"silu_and_mul", "gelu_and_mul"})

_library: Any = None
_tpc_state: str = "not loaded"
_has_tpc: bool = False


def version() -> str:
    """The version of the installed distribution."""
    return importlib.metadata.version("vllm-ops-gaudi")


def available() -> tuple[bool, str]:
    """Whether an HPU answers here, and the reason in words. Imports ``habana_frameworks``.

    Raises:
        ImportError: ``habana_frameworks`` is installed and damaged: it cannot be imported, or
        brings no ``torch.hpu``.
    """
    if importlib.util.find_spec("habana_frameworks") is None:
        return False, "habana_frameworks is not installed"
    import torch

    from . import _tpc

    _tpc.announce()
    try:
        importlib.import_module("habana_frameworks.torch")
    except Exception as error:  # whatever a damaged installation raises
        raise ImportError(
            f"habana_frameworks is installed, but habana_frameworks.torch cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    probe = getattr(getattr(torch, "hpu", None), "is_available", None)
    if not callable(probe):
        raise ImportError("habana_frameworks is installed, but brings no torch.hpu.is_available")
    if not probe():
        return False, "habana_frameworks finds no HPU: torch.hpu.is_available() is False"
    return True, "an HPU answers"


def load() -> None:
    """Register the kernels with torch. Calling it again does nothing.

    Raises:
        ImportError: ``habana_frameworks`` lacks one of the functions that the kernels call.
    """
    global _library, _has_tpc, _tpc_state
    if _library is not None:
        return
    from . import _hpex, _register, _tpc

    _hpex.require()
    _has_tpc, _tpc_state = _tpc.load()
    _library = _register.register(ops_provided(), dispatch_key)


def ops_provided() -> frozenset[str]:
    """The names of the operators that have a kernel here, the TPC ones where they are loaded.

    A kernel hands single calls back to the reference where Habana's operator cannot keep the
    contract; ``docs/gaudi.md`` lists which.
    """
    return _HPEX_OPS | _TPC_OPS if _has_tpc else _HPEX_OPS


def info() -> dict[str, str]:
    """For ``vllm-ops info``: whether the TPC kernels are loaded, and why not."""
    return {"tpc": _tpc_state}
