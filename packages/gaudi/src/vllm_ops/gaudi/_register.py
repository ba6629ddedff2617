# SPDX-License-Identifier: Apache-2.0
"""The kernels under their dispatch key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from vllm_ops.shared.ops import NAMESPACE, OPS

from . import activation, layernorm, rotary

KERNELS: dict[str, Callable[..., Any]] = {
    "silu_and_mul": activation.silu_and_mul,
    "gelu_and_mul": activation.gelu_and_mul,
    "rms_norm": layernorm.rms_norm,
    "rms_norm_": layernorm.rms_norm_,
    "fused_add_rms_norm": layernorm.fused_add_rms_norm,
    "fused_add_rms_norm_": layernorm.fused_add_rms_norm_,
    "rotary_embedding": rotary.rotary_embedding,
    "rotary_embedding_": rotary.rotary_embedding_,
    "multimodal_rotary_embedding": rotary.multimodal_rotary_embedding,
    "apply_rotary_emb": rotary.apply_rotary_emb,
    "qk_norm_rope": rotary.qk_norm_rope,
}


def _checked(op: str) -> Callable[..., Any]:
    """The kernel behind the operator's checks of shapes and dtypes. Positions are not read: that
    would be a synchronisation, so one outside of the table gives NaN."""
    kernel, check = KERNELS[op], OPS[op].check

    def run(*args: Any) -> Any:
        try:
            check(*args)
        except (TypeError, ValueError, IndexError) as error:
            raise RuntimeError(str(error)) from None
        return kernel(*args)

    return run


def register(ops: Iterable[str], dispatch_key: str) -> torch.library.Library:
    """Register the kernels of ``ops``; they stay as long as the library object does."""
    library = torch.library.Library(NAMESPACE, "IMPL")
    for op in sorted(ops):
        library.impl(op, _checked(op), dispatch_key)
    return library
