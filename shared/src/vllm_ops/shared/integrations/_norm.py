# SPDX-License-Identifier: Apache-2.0
"""RMSNorm layers of Hugging Face models."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ..ops import layernorm as _ops
from ..reference.layernorm import rms_norm as _reference
from . import _twin
from ._adopt import Adopted

_rms_norm: Callable[..., Tensor] = _ops.rms_norm.call


@dataclass(frozen=True)
class NormSpec:
    """What an RMSNorm class computes, in the arguments of ``rms_norm``."""

    eps: float
    weight_offset: float
    round_before_weight: bool


class FusedRMSNorm(Adopted):
    """An RMSNorm that runs the kernel."""

    name = "rms_norm"
    ops = ("rms_norm",)

    spec: NormSpec

    def forward_kernel(self, x: Tensor) -> Tensor:
        spec = self.spec
        weight = self._parameters.get("weight")
        if weight is not None and weight.dtype != x.dtype:
            # Models differ in the dtype they return here, as under autocast; theirs decides.
            return cast(Tensor, self.forward_native(x))
        return _rms_norm(x, weight, spec.eps, None, spec.weight_offset, spec.round_before_weight)


def recognise(module: nn.Module) -> NormSpec | str:
    """What ``module`` computes, or why it is no RMSNorm that the kernel computes."""
    if module._modules or module._buffers:
        return "it has modules or buffers of its own"
    parameters = {name for name, value in module._parameters.items() if value is not None}
    if parameters - {"weight"}:
        return f"it has the parameters {', '.join(sorted(parameters))}"
    weight = module._parameters.get("weight")
    if weight is not None and (weight.dim() != 1 or type(weight) is not nn.Parameter):
        return f"its weight is a {type(weight).__name__} of shape {list(weight.shape)}"
    values = (vars(module).get(name) for name in ("variance_epsilon", "eps", "epsilon"))
    eps = next((value for value in values if isinstance(value, float)), None)
    if eps is None:
        return "it has no eps"
    for offset, early in itertools.product((0.0, 1.0), (True, False)):
        spec = NormSpec(eps, offset, early)
        if all(_computes(module, spec, weight is not None, dtype) for dtype in _twin.DTYPES):
            return spec
    return f"{type(module).__name__}.forward computes something else"


def _computes(module: nn.Module, spec: NormSpec, has_weight: bool, dtype: torch.dtype) -> bool:
    weight = _twin.random(_twin.SIZE, dtype=dtype, seed=1) if has_weight else None
    x = _twin.random(3, 2, _twin.SIZE, dtype=dtype, seed=2)
    other = _twin.twin(module, {"weight": weight})
    return _twin.agree(
        lambda: type(module).forward(other, x),
        lambda: _reference(x, weight, spec.eps, None, spec.weight_offset, spec.round_before_weight),
        dtype,
    )
