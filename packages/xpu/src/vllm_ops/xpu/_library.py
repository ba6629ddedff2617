# SPDX-License-Identifier: Apache-2.0
"""The functions of ``libvllm_ops_xpu.so`` besides torch's operators."""

from __future__ import annotations

import ctypes
import functools
import time
from dataclasses import dataclass
from typing import Final

FAMILIES: Final[dict[str, tuple[str, ...]]] = {
    "silu_and_mul": ("gated",),
    "mul_and_silu": ("gated",),
    "gelu_and_mul": ("gated",),
    "fatrelu_and_mul": ("gated",),
    "silu_and_mul_with_clamp": ("gated",),
    "swigluoai_and_mul": ("gated",),
    "gelu": ("unary",),
    "gelu_tanh": ("unary",),
    "gelu_new": ("unary",),
    "gelu_fast": ("unary",),
    "quick_gelu": ("unary",),
    "relu2": ("unary",),
    "xielu": ("unary",),
    "rms_norm": ("rms_norm",),
    "rms_norm_": ("rms_norm",),
    "fused_add_rms_norm": ("rms_norm",),
    "fused_add_rms_norm_": ("rms_norm",),
    "layer_norm": ("layer_norm",),
    "rms_norm_gated": ("rms_norm_gated",),
    "rotary_embedding": ("rotary",),
    "rotary_embedding_": ("rotary",),
    "multimodal_rotary_embedding": ("rotary",),
    "apply_rotary_emb": ("rotary",),
    # Heads that one sub-group doesn't take run as the unfused pair.
    "qk_norm_rope": ("qk_norm_rope", "rms_norm", "rotary"),
}
"""The families of kernels that an operator may launch."""


@dataclass(frozen=True)
class Unit:
    """Kernels that are compiled together.

    Attributes:
        family: such as ``gated``.
        dtype: ``float32``, ``float16`` or ``bfloat16``.
        kernels: how many.
        seconds: what compiling them took; 0 where that had happened before.
    """

    family: str
    dtype: str
    kernels: int
    seconds: float


@functools.cache
def open_library(path: str) -> ctypes.CDLL:
    """The library with the types of its functions. Torch must have loaded it before."""
    library = ctypes.CDLL(path)
    library.vllm_ops_xpu_register.argtypes = [ctypes.c_char_p]
    library.vllm_ops_xpu_register.restype = None
    library.vllm_ops_xpu_unit_family.restype = ctypes.c_char_p
    library.vllm_ops_xpu_unit_dtype.restype = ctypes.c_char_p
    library.vllm_ops_xpu_compile.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_int),
    ]
    library.vllm_ops_xpu_compile.restype = ctypes.c_char_p
    library.vllm_ops_xpu_describe.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    library.vllm_ops_xpu_describe.restype = ctypes.c_char_p
    return library


def compile_units(
    library: ctypes.CDLL, queue: int | None, families: set[str], dtypes: set[str]
) -> list[Unit]:
    """Compile what isn't yet; every unit of ``families`` and ``dtypes``, and what it took.

    Raises:
        RuntimeError: with the compiler's message.
    """
    done = []
    for index in range(library.vllm_ops_xpu_units()):
        family = library.vllm_ops_xpu_unit_family(index).decode()
        dtype = library.vllm_ops_xpu_unit_dtype(index).decode()
        if family not in families or dtype not in dtypes:
            continue
        compiled = ctypes.c_int()
        start = time.perf_counter()
        error = library.vllm_ops_xpu_compile(queue, index, ctypes.byref(compiled))
        if error is not None:
            raise RuntimeError(f"warmup: {error.decode()}")
        took = time.perf_counter() - start if compiled.value else 0.0
        done.append(Unit(family, dtype, library.vllm_ops_xpu_unit_kernels(index), took))
    return done


def describe(library: ctypes.CDLL, queue: int | None) -> str:
    """The name and the driver of a queue's device; of the SYCL CPU device without a queue."""
    text = ctypes.create_string_buffer(256)
    error = library.vllm_ops_xpu_describe(queue, text, len(text))
    if error is not None:
        raise RuntimeError(error.decode())
    return text.value.decode(errors="replace")
