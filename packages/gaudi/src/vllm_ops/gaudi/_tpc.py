# SPDX-License-Identifier: Apache-2.0
"""The TPC kernels, where the build could compile them: two libraries beside this file.

The graph compiler reads ``GC_KERNEL_PATH`` to find libraries of kernels, so the variable must name
ours before ``habana_frameworks`` is imported, and Habana's own library beside it: Habana's
installation sets the variable to that one.
"""

from __future__ import annotations

import importlib
import importlib.resources
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PATH = "GC_KERNEL_PATH"
KERNELS = "libvllm_ops_gaudi_tpc.so"
OPERATORS = "libvllm_ops_gaudi_ops.so"
VENDOR = Path("/usr/lib/habanalabs/libtpc_kernels.so")

SUFFIX = {torch.bfloat16: "bf16", torch.float32: "f32"}
MAX_COLUMNS = {torch.bfloat16: 256 * 128, torch.float32: 128 * 128}
"""The longest row whose sum fits into a core's local memory, by ``csrc/tpc/vec.h``."""

loaded = False
_left_out: str | None = None


def folder() -> Path:
    """Where the libraries are."""
    # Not next to __file__: in an editable install they are in site-packages.
    return Path(str(importlib.resources.files(__package__).joinpath(KERNELS))).parent


def _why_not_built() -> str:
    try:
        reason: str = importlib.import_module(f"{__package__}._build_info").TPC_SKIPPED
    except ImportError:
        reason = "the build left no word"
    return f"not built: {reason or f'{KERNELS} is missing'}"


def _named() -> list[str]:
    return [name for name in os.environ.get(PATH, "").split(":") if name]


def _why_not_announced() -> str | None:
    """Why ``GC_KERNEL_PATH`` must stay as it is, or None."""
    if str(folder() / KERNELS) in _named():
        return None
    if "habana_frameworks.torch" in sys.modules:
        return (
            f"habana_frameworks was imported before {PATH} named {folder() / KERNELS}; "
            f"set the variable, or build the first layer before that import"
        )
    if not _named() and not VENDOR.exists():
        return f"{PATH} is not set, and Habana's own library is not at {VENDOR}"
    return None


def announce() -> None:
    """Name our library in ``GC_KERNEL_PATH``, where that is possible and in time."""
    global _left_out
    library = folder() / KERNELS
    if not library.exists():
        return
    _left_out = _why_not_announced()
    if _left_out is None and str(library) not in _named():
        os.environ[PATH] = ":".join([str(library), *(_named() or [str(VENDOR)])])


def load() -> tuple[bool, str]:
    """Load the torch operators of the kernels: whether they can be used, and the reason.

    Raises:
        ImportError: the libraries are there and cannot be loaded.
    """
    global loaded
    if not all((folder() / name).exists() for name in (KERNELS, OPERATORS)):
        return False, _why_not_built()
    if _left_out is not None:
        return False, _left_out
    try:
        torch.ops.load_library(str(folder() / OPERATORS))
    except Exception as error:
        raise ImportError(
            f"{OPERATORS} cannot be loaded into torch {torch.__version__}: "
            f"{' '.join(str(error).split())}"
        ) from error
    loaded = True
    return True, "loaded"


def _call(kernel: str, dtype: torch.dtype, *args: Any) -> Any:
    return getattr(torch.ops.vllm_ops_gaudi, f"{kernel}_{SUFFIX[dtype]}").default(*args)


def takes(*tensors: Tensor) -> bool:
    """Whether the kernels are loaded and take these tensors: one dtype that they know, no empty
    one."""
    dtype = tensors[0].dtype
    return (
        loaded
        and dtype in SUFFIX
        and all(value.dtype == dtype and value.numel() > 0 for value in tensors)
    )


def silu_and_mul(x: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    result: Tensor = _call("silu_and_mul", x.dtype, rows)
    return result.reshape(*x.shape[:-1], x.shape[-1] // 2)


def gelu_and_mul(x: Tensor, approximate: str) -> Tensor:
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    result: Tensor = _call("gelu_and_mul", x.dtype, rows, approximate == "tanh")
    return result.reshape(*x.shape[:-1], x.shape[-1] // 2)


def _weight(weight: Tensor | None, like: Tensor, size: int, offset: float) -> tuple[Tensor, float]:
    """The weight and its offset; ones and 0 without one."""
    if weight is None:
        return torch.ones(size, dtype=like.dtype, device=like.device), 0.0
    return weight.contiguous(), float(offset)


def fused_add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    eps: float,
    weight_offset: float,
    round_before_weight: bool,
) -> tuple[Tensor, Tensor]:
    """``weight`` has the dtype of ``x``, whose last dimension is at most :data:`MAX_COLUMNS`."""
    size = x.shape[-1]
    scale, offset = _weight(weight, x, size, weight_offset)
    normed, total = _call(
        "fused_add_rms_norm",
        x.dtype,
        x.reshape(-1, size).contiguous(),
        residual.reshape(-1, size).contiguous(),
        scale,
        float(eps),
        offset,
        round_before_weight,
    )
    return normed.reshape(x.shape), total.reshape(x.shape)


def qk_norm(
    query: Tensor,
    key: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    eps: float,
    weight_offset: float,
    round_before_weight: bool,
) -> tuple[Tensor, Tensor]:
    """The norm of each head of ``[tokens, heads, head_size]``, weights of the same dtype."""
    normed: tuple[Tensor, Tensor] = _call(
        "qk_norm",
        query.dtype,
        query.contiguous(),
        key.contiguous(),
        q_weight.contiguous(),
        k_weight.contiguous(),
        float(eps),
        float(weight_offset),
        round_before_weight,
    )
    return normed
