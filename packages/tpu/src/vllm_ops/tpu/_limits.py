# SPDX-License-Identifier: Apache-2.0
"""Which calls the kernels take. Decided from shapes and dtypes alone, before anything is traced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

EXPRESSIONS = (
    "silu_and_mul",
    "mul_and_silu",
    "gelu_and_mul",
    "fatrelu_and_mul",
    "silu_and_mul_with_clamp",
    "swigluoai_and_mul",
)
NORMS = ("rms_norm", "fused_add_rms_norm", "layer_norm", "rms_norm_gated")
ROTARY = ("rotary_embedding", "multimodal_rotary_embedding", "apply_rotary_emb", "qk_norm_rope")
IN_PLACE = ("rms_norm_", "fused_add_rms_norm_", "rotary_embedding_")

MOST_GROUPS = 16
"""``rms_norm_gated`` unrolls its groups."""
MOST_HEADS = 256
"""Rotary kernels unroll the heads."""

LIMITS: dict[str, str] = {
    **dict.fromkeys(EXPRESSIONS, "native for empty tensors"),
    **dict.fromkeys(NORMS, "native for float16, float64, empty tensors and rows beyond VMEM"),
    "rms_norm_gated": "native for float16, float64, empty tensors, rows beyond VMEM and more than "
    f"{MOST_GROUPS} groups",
    **dict.fromkeys(
        ROTARY,
        "native for float16, float64, empty tensors, tokens beyond VMEM and more than "
        f"{MOST_HEADS} heads",
    ),
}
LIMITS.update({op: LIMITS[op.removesuffix("_")] for op in IN_PLACE})
"""In words, for ``explain``."""


PALLAS_DTYPES = (torch.bfloat16, torch.float32)
NOTHING = "there is nothing to do"


def _dtype_or_size(x: Tensor) -> str | None:
    if x.dtype not in PALLAS_DTYPES:
        return f"Mosaic has no {str(x.dtype).removeprefix('torch.')}"
    if x.numel() == 0:
        return NOTHING
    return None


def expression(x: Tensor) -> str | None:
    """Why a gated activation goes to the reference, or None."""
    return None if x.numel() else NOTHING


def norm(op: str, x: Tensor, group_size: int | None = None) -> str | None:
    """Why a norm goes to the reference, or None."""
    from ._bridge import jax_dtype
    from .kernels import layernorm

    why = _dtype_or_size(x)
    if why is not None:
        return why
    columns = x.shape[-1]
    if group_size is not None and columns // group_size > MOST_GROUPS:
        return f"{columns // group_size} groups are more than {MOST_GROUPS}, which are unrolled"
    if not layernorm.block_rows_of(op, x.numel() // columns, columns, jax_dtype(x.dtype)):
        return f"rows of {columns} elements are too long for VMEM"
    return None


def rotary(xs: Iterable[Any], places: int, head_size: int) -> str | None:
    """Why a rotation of ``xs``, each with the elements of so many places, goes to the reference."""
    from ._bridge import jax_dtype
    from .kernels import rotary as kernels

    given = [x for x in xs if x is not None]
    for x in given:
        why = _dtype_or_size(x)
        if why is not None:
            return why
    columns = sum(x.numel() // places for x in given)
    if columns // head_size > MOST_HEADS:
        return f"{columns // head_size} heads are more than {MOST_HEADS}, which are unrolled"
    if not kernels.block_rows_of(places, columns, jax_dtype(given[0].dtype)):
        return f"tokens of {columns} elements are too long for VMEM"
    return None
