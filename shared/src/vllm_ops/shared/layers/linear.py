# SPDX-License-Identifier: Apache-2.0
"""The linear layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from .. import backends
from ..custom_op import CustomOp
from ..decision import Decision
from ..ops import _checks
from ..ops import linear as _ops
from ..reference import linear as reference

_linear: Callable[..., Tensor] = _ops.linear.call
_reference: Callable[..., Tensor] = reference.linear


def for_weight(decision: Decision, weight: Tensor | None) -> Decision:
    """``decision``, or native where the backend leaves weights of this dtype to torch."""
    path = None
    if weight is not None and not decision.native:
        path = backends.linear_path(decision.device, weight.dtype)
    if path is None:
        return decision
    if path.kernel:
        return dataclasses.replace(decision, reason=path.reason)
    return dataclasses.replace(
        decision, method="forward_native", native=True, asked=True, reason=path.reason
    )


@CustomOp.register("linear")
class Linear(CustomOp):
    """``x [..., in_features] -> x weight^T + bias [..., out_features]``, rounded once.

    The parameters, their names and their initial values are those of ``nn.Linear``. A backend may
    leave a weight of some dtype to torch, where torch is as fast; the decision's reason says so.
    It is taken again when ``.to()`` changes the weight's dtype.

    Args:
        in_features, out_features: the sizes of the last dimension.
        bias: False for a layer without a bias.
        device, dtype: of the parameters; ``x`` must have the same.

    Raises:
        TypeError: x is not a floating point tensor, or not in the weight's dtype.
        ValueError: a size does not fit.
    """

    ops = ("linear",)

    weight: nn.Parameter
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
        _checks.size("linear", "in_features", in_features)
        _checks.size("linear", "out_features", out_features)
        _checks.boolean("linear", "bias", bias)
        _checks.parameter_dtype("linear", dtype)
        super().__init__(enabled=enabled)
        self.in_features = in_features
        self.out_features = out_features
        weight = torch.empty(out_features, in_features, device=device, dtype=dtype)
        self.weight = nn.Parameter(weight)
        offset = torch.empty(out_features, device=device, dtype=dtype) if bias else None
        self.register_parameter("bias", None if offset is None else nn.Parameter(offset))
        self.reset_parameters()
        self.dispatch_forward()

    @classmethod
    def sharing(cls, linear: nn.Linear) -> Linear:
        """A layer with the parameters of ``linear`` themselves, in the same mode."""
        new = cls(linear.in_features, linear.out_features, linear.bias is not None, "meta")
        new.weight = cast(nn.Parameter, linear.weight)
        new.bias = cast("nn.Parameter | None", linear.bias)
        new.training = linear.training
        new.dispatch_forward()
        return new

    def reset_parameters(self) -> None:
        """Draw the parameters as ``nn.Linear`` does."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            nn.init.uniform_(self.bias, -bound, bound)

    def _choose(self) -> Decision:
        return for_weight(super()._choose(), self._parameters.get("weight"))

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Linear:
        before = self.weight.dtype
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.weight.dtype != before:
            self.dispatch_forward()
        return self

    def forward_native(self, x: Tensor) -> Tensor:
        parameters = self._parameters
        try:
            return _reference(x, parameters["weight"], parameters["bias"])
        except (RuntimeError, TypeError):
            if not torch.compiler.is_compiling():
                _ops.linear.check(x, parameters["weight"], parameters["bias"])
            raise

    def forward_kernel(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            return self.forward_native(x)  # torch chooses the dtype
        parameters = self._parameters
        return _linear(x, parameters["weight"], parameters["bias"])

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, {super().extra_repr()}"
        )
