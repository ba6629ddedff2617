# SPDX-License-Identifier: Apache-2.0
"""Linear layers of Hugging Face models in half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from .. import backends
from ..decision import Decision
from ..layers.linear import for_weight
from ..ops import linear as _ops
from ._adopt import Adopted

_linear: Callable[..., Tensor] = _ops.linear.call

HALF = (torch.bfloat16, torch.float16)


class FusedLinear(Adopted):
    """``nn.Linear`` on the kernel. The parameters stay what and where they are, so a weight that
    is tied to the embedding stays tied."""

    name = "linear"
    ops = ("linear",)

    def _choose(self) -> Decision:
        return for_weight(super()._choose(), cast(Tensor, self._parameters["weight"]))

    def forward_kernel(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            return cast(Tensor, self.forward_native(x))  # torch chooses the dtype
        parameters = self._parameters
        return _linear(x, parameters["weight"], parameters["bias"])


KIND = FusedLinear


def is_candidate(module: nn.Module) -> bool:
    """Whether ``module`` is a linear layer in half precision; in fp32 there is nothing to gain."""
    return type(module) is nn.Linear and module.weight.dtype in HALF


def recognise(module: nn.Linear) -> str | None:
    """Why a candidate stays as it is, or None."""
    if type(module.weight) is not nn.Parameter:
        return f"its weight is a {type(module.weight).__name__}"
    if module.bias is not None and module.bias.dtype != module.weight.dtype:
        return "its bias has another dtype than its weight"
    chosen = backends.choose()
    if not chosen.usable:
        return None  # the layer records that, like every other
    path = backends.linear_path(chosen.name, module.weight.dtype)
    return None if path is None or path.kernel else path.reason
