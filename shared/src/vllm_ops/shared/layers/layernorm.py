# SPDX-License-Identifier: Apache-2.0
"""Norm layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..custom_op import CustomOp
from ..ops import layernorm as _ops

_Pair = tuple[Tensor, Tensor]

_rms_norm: Callable[..., Tensor] = _ops.rms_norm.call
_rms_norm_native: Callable[..., Tensor] = _ops.rms_norm.checked_native
_fused_add_rms_norm: Callable[..., _Pair] = _ops.fused_add_rms_norm.call
_fused_add_rms_norm_native: Callable[..., _Pair] = _ops.fused_add_rms_norm.checked_native


@CustomOp.register("rms_norm")
class RMSNorm(CustomOp):
    """RMSNorm over the last dimension (arXiv:1910.07467), in the rounding order of Llama.

    ``forward(x)`` returns ``norm(x)``; ``forward(x, residual)`` returns ``(norm(x + residual),
    x + residual)``. Inputs are not modified. ``x`` is ``[..., hidden_size]``.

    Args:
        hidden_size: the size of the last dimension.
        eps: added to the mean square.
        variance_size: take the mean over the first ``variance_size`` elements only.
        has_weight: False for a norm without a weight.
        dtype, device: of the weight; it may differ from the input's dtype, the output never does.

    Raises:
        TypeError: x is not a floating point tensor, or residual has another dtype.
        ValueError: a size does not fit.
    """

    ops = ("rms_norm", "fused_add_rms_norm")

    weight: nn.Parameter | None

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        variance_size: int | None = None,
        has_weight: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        *,
        enabled: bool | None = None,
    ) -> None:
        if hidden_size < 1:
            raise ValueError(f"rms_norm: hidden_size must be above 0, got {hidden_size}")
        if variance_size is not None and not 0 < variance_size <= hidden_size:
            raise ValueError(
                f"rms_norm: variance_size must be between 1 and {hidden_size}, got {variance_size}"
            )
        super().__init__(enabled=enabled)
        self.hidden_size = hidden_size
        self.eps = eps
        self.variance_size = None if variance_size == hidden_size else variance_size
        weight = torch.ones(hidden_size, dtype=dtype, device=device) if has_weight else None
        self.register_parameter("weight", None if weight is None else nn.Parameter(weight))

    def _check_size(self, x: Any) -> None:
        if isinstance(x, Tensor) and x.dim() and x.shape[-1] != self.hidden_size:
            raise ValueError(
                f"rms_norm: x must have {self.hidden_size} elements in the last dimension, "
                f"got {x.shape[-1]}"
            )

    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Tensor | _Pair:
        self._check_size(x)
        weight = self._parameters["weight"]
        if residual is None:
            return _rms_norm_native(x, weight, self.eps, self.variance_size)
        return _fused_add_rms_norm_native(x, residual, weight, self.eps, self.variance_size)

    def forward_kernel(self, x: Tensor, residual: Tensor | None = None) -> Tensor | _Pair:
        weight = self._parameters["weight"]
        if weight is None:
            self._check_size(x)
        if residual is None:
            return _rms_norm(x, weight, self.eps, self.variance_size)
        return _fused_add_rms_norm(x, residual, weight, self.eps, self.variance_size)

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}, {super().extra_repr()}"
