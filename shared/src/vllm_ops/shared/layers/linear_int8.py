# SPDX-License-Identifier: Apache-2.0
"""The linear layer with an int8 weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from ..custom_op import CustomOp
from ..ops import _checks
from ..ops import linear as _ops
from ..quantize import quantize_int8

_linear_int8: Callable[..., Tensor] = _ops.linear_int8.call
_native: Callable[..., Tensor] = _ops.linear_int8.checked_native


@CustomOp.register("linear_int8")
class LinearInt8(CustomOp):
    """``x [..., in_features] -> (x weight^T) * scale + bias [..., out_features]``, rounded once.

    For one to some tens of rows, where reading the weight is what takes the time: int8 is half of
    bf16. The weight and the scale take no gradient. A new layer computes zeros until its state is
    loaded; :meth:`from_linear` makes one from weights that exist.

    Args:
        in_features, out_features: the sizes of the last dimension.
        bias: False for a layer without a bias.
        device: of the parameters.
        dtype: of the bias, and so of ``x``; without a bias ``x`` may have any.

    Raises:
        TypeError: x is not a floating point tensor, or not in the bias's dtype.
        ValueError: a size does not fit.
    """

    ops = ("linear_int8",)

    weight: nn.Parameter
    scale: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        enabled: bool | None = None,
    ) -> None:
        _checks.size("linear_int8", "in_features", in_features)
        _checks.size("linear_int8", "out_features", out_features)
        _checks.boolean("linear_int8", "bias", bias)
        _checks.parameter_dtype("linear_int8", dtype)
        super().__init__(enabled=enabled)
        self.in_features = in_features
        self.out_features = out_features
        weight = torch.zeros(out_features, in_features, dtype=torch.int8, device=device)
        self.weight = nn.Parameter(weight, requires_grad=False)
        scale = torch.ones(out_features, dtype=torch.float32, device=device)
        self.scale = nn.Parameter(scale, requires_grad=False)
        offset = torch.zeros(out_features, dtype=dtype, device=device) if bias else None
        self.register_parameter("bias", None if offset is None else nn.Parameter(offset))
        self.dispatch_forward()

    @classmethod
    def from_linear(cls, linear: nn.Module) -> LinearInt8:
        """The weights of an ``nn.Linear`` or a ``Linear``, quantised; the bias is shared.

        Raises:
            TypeError: its weight is not a floating point tensor.
            ValueError: its weight holds a NaN or an infinity.
        """
        weight = cast(Tensor, linear.weight)
        quantised, scale = quantize_int8(weight)
        n, k = quantised.shape
        new = cls(k, n, linear.bias is not None, "meta")
        new.weight = nn.Parameter(quantised, requires_grad=False)
        new.scale = nn.Parameter(scale, requires_grad=False)
        new.bias = cast("nn.Parameter | None", linear.bias)
        new.training = linear.training
        return new

    def _apply(self, fn: Callable[..., object], recurse: bool = True) -> LinearInt8:
        # .half() and the like are for the bias: the scale stays fp32.
        scale = self.scale.data
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.scale.dtype != torch.float32:
            self.scale.data = scale.to(self.scale.device)
        return self

    def forward_native(self, x: Tensor) -> Tensor:
        parameters = self._parameters
        return _native(x, parameters["weight"], parameters["scale"], parameters["bias"])

    def forward_kernel(self, x: Tensor) -> Tensor:
        parameters = self._parameters
        return _linear_int8(x, parameters["weight"], parameters["scale"], parameters["bias"])

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, {super().extra_repr()}"
        )
