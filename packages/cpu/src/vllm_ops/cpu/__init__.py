# SPDX-License-Identifier: Apache-2.0
"""The CPU backend of vllm_ops: C++ kernels for x86-64 (SSE2, AVX2, AVX-512) and aarch64 (NEON).

Importing this module loads nothing. :func:`load` registers the kernels under torch's ``CPU``
dispatch key; ``vllm_ops.shared`` calls it when the first module is built. The instruction set is
chosen when the library is loaded; the environment variable ``VLLM_OPS_CPU_ISA`` (``baseline``,
``avx2``, ``avx512``) forces one.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import os
import platform
from typing import Final

__all__ = [
    "available",
    "device_type",
    "dispatch_key",
    "info",
    "isa",
    "linear_path",
    "load",
    "name",
    "ops_provided",
    "version",
]

name: Final = "cpu"
device_type: Final = "cpu"
dispatch_key: Final = "CPU"

_LIBRARY: Final = "libvllm_ops_cpu.so"

_OPS: Final = frozenset(
    {
        "silu_and_mul",
        "mul_and_silu",
        "gelu_and_mul",
        "fatrelu_and_mul",
        "silu_and_mul_with_clamp",
        "swigluoai_and_mul",
        "gelu",
        "gelu_tanh",
        "gelu_new",
        "gelu_fast",
        "quick_gelu",
        "relu2",
        "linear",
        "linear_int8",
        "xielu",
        "rms_norm",
        "rms_norm_",
        "fused_add_rms_norm",
        "fused_add_rms_norm_",
        "layer_norm",
        "rms_norm_gated",
        "rotary_embedding",
        "rotary_embedding_",
        "multimodal_rotary_embedding",
        "apply_rotary_emb",
        "qk_norm_rope",
    }
)

_loaded: ctypes.CDLL | None = None


def version() -> str:
    """The version of the installed distribution."""
    return importlib.metadata.version("vllm-ops-cpu")


def _library_path() -> str:
    # Not next to __file__: in an editable install the library is in site-packages and this file in
    # the source tree, and the package's resources cover both.
    path = importlib.resources.files(__name__).joinpath(_LIBRARY)
    return os.fspath(path) if isinstance(path, os.PathLike) else str(path)


def _torch_versions() -> str:
    try:
        built = importlib.import_module(f"{__name__}._build_info").BUILT_AGAINST_TORCH
    except ImportError:
        built = "an unknown version"
    try:
        running = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        running = "none"
    return f"it was built against torch {built}, running is torch {running}"


def available() -> tuple[bool, str]:
    """Whether the kernels can run here, and the reason in words: once they are loaded, with the
    instruction set in use. Loads nothing."""
    if importlib.util.find_spec("torch") is None:
        return False, "torch is not installed"
    if not os.path.exists(_library_path()):
        return False, f"{_LIBRARY} is missing from the vllm-ops-cpu {version()} installation"
    if _loaded is None:
        return True, f"vllm-ops-cpu {version()} for {platform.machine()}"
    return True, f"vllm-ops-cpu {version()}, {isa()} kernels"


def load() -> None:
    """Register the kernels with torch. Calling it again does nothing.

    Raises:
        ImportError: the library cannot be loaded into this torch, with both torch versions; or
            ``VLLM_OPS_CPU_ISA`` asks for an instruction set that this CPU lacks.
    """
    global _loaded
    if _loaded is not None:
        return
    import torch
    from vllm_ops.shared.ops import native_fallback

    path = _library_path()
    try:
        library = ctypes.CDLL(path)  # the reason of a failure, which torch would print at length
        torch.ops.load_library(path)
    except OSError as error:
        raise ImportError(
            f"vllm-ops-cpu {version()} cannot be loaded: {_torch_versions()} ({error})"
        ) from error
    library.vllm_ops_cpu_isa.restype = ctypes.c_char_p
    library.vllm_ops_cpu_isa_error.restype = ctypes.c_char_p
    library.vllm_ops_cpu_linear_path.restype = ctypes.c_char_p
    library.vllm_ops_cpu_linear_path.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    refused = library.vllm_ops_cpu_isa_error().decode()
    if refused:
        raise ImportError(f"vllm-ops-cpu {version()}: {refused}")
    # The one operator whose kernel hands some calls (fp64) to the reference.
    native_fallback.provide({"linear_int8"})
    _loaded = library


def isa() -> str:
    """The instruction set in use: ``baseline``, ``avx2`` or ``avx512``. Loads the kernels."""
    load()
    assert _loaded is not None  # noqa: S101  (for the type checker)
    chosen: bytes = _loaded.vllm_ops_cpu_isa()
    return chosen.decode()


def info() -> dict[str, str]:
    """For ``vllm-ops info``."""
    return {"isa": isa()}


def linear_path(dtype: str, report: str | None = None) -> tuple[bool, str, int | None]:
    """Whether ``linear`` with a weight of this dtype runs the kernel here, why, in words, and up to
    how many rows of ``x``: None for any number.

    It leaves the multiplication to torch where torch has instructions of its own for the dtype.

    Args:
        dtype: ``"bfloat16"``, ``"float16"``, ...
        report: what to assume instead of asking the CPU and torch: words from ``x86``,
            ``avx512_bf16``, ``avx512_fp16``, ``amx_bf16``, ``amx_fp16``, ``torch_bf16``,
            ``torch_fp16``, and the instruction set of the kernels (see :func:`isa`).
    """
    load()
    assert _loaded is not None  # noqa: S101  (for the type checker)
    asked = None if report is None else report.encode()
    answer: bytes = _loaded.vllm_ops_cpu_linear_path(dtype.encode(), asked)
    path, _, reason = answer.decode().partition(": ")
    kind, _, rows = path.partition(" ")
    return kind == "kernel", reason, int(rows) if rows else None


def ops_provided() -> frozenset[str]:
    """The names of the operators that have a kernel here."""
    return _OPS
