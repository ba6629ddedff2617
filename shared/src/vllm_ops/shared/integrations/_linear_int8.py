# SPDX-License-Identifier: Apache-2.0
"""Linear layers of Hugging Face models with int8 weights, for decoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..decision import Decision
from ..ops import linear as _ops
from ..quantize import quantize_int8
from ._adopt import Adopted

_linear: Callable[..., Tensor] = _ops.linear.call
_linear_int8: Callable[..., Tensor] = _ops.linear_int8.call

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

SMALLEST = 1 << 16
"""Weights of fewer elements stay as they are: the call costs more than reading them. Among them
are the routers of most mixtures of experts, whose choice int8 could change."""


def _state(weight: Tensor) -> tuple[int, int, int]:
    """What changes when a weight is replaced, moved or written to."""
    version = 0 if weight.is_inference() else weight._version
    return id(weight), weight.data_ptr(), version


class FusedInt8Linear(Adopted):
    """``nn.Linear`` on an int8 copy of its weight, for few rows.

    With many rows the multiplications take the time, not the weight, and int8 gains nothing: they
    run on the weight itself, as in a prompt.

    The weight itself stays, so that ``state_dict`` and going back are exact, and takes no gradient
    meanwhile. A call that finds it changed makes the copy again.
    """

    name = "linear_int8"
    ops = ("linear_int8",)

    most_rows = 16
    """At 4096 x 4096 with AVX512-BF16, int8 takes 0.67 of torch's bf16 time at 8 rows and 1.5 at
    32; without AVX512-BF16, 0.92 and 0.97 of the time of ``linear``."""

    in_features: int
    weight: nn.Parameter
    quantised: tuple[Tensor, Tensor] | None
    made_of: tuple[int, int, int] | None
    """The weight that ``quantised`` was made of, see :func:`_state`."""

    trained: bool
    """Whether the weight required a gradient before."""

    def _choose(self) -> Decision:
        decision = super()._choose()
        if decision.native:
            return decision
        return dataclasses.replace(
            decision,
            reason=f"weights rounded to int8, as asked, for up to {self.most_rows} rows: results "
            "are not the model's own",
        )

    def forward_kernel(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            return cast(Tensor, self.forward_native(x))  # torch chooses the dtype
        parameters = self._parameters
        weight = parameters["weight"]
        if x.numel() > self.most_rows * self.in_features or x.dtype != cast(Tensor, weight).dtype:
            return _linear(x, weight, parameters["bias"])
        # A capture takes the copy as it is.
        if not torch.compiler.is_compiling() and self.made_of != _state(cast(Tensor, weight)):
            self.quantise()
        if self.quantised is None:
            return _linear(x, weight, parameters["bias"])
        return _linear_int8(x, *self.quantised, parameters["bias"])

    def quantise(self) -> None:
        """Make the copy; none of a weight that holds a NaN or an infinity."""
        weight = self.weight
        self.made_of = _state(weight)
        try:
            with torch.inference_mode(False):
                self.quantised = quantize_int8(weight.detach())
        except ValueError:
            self.quantised = None

    def adopted(self) -> None:
        self.trained = self.weight.requires_grad
        if not self.decision.native:
            self.quantise()
            self.weight.requires_grad_(False)

    def released(self) -> None:
        self.weight.requires_grad_(self.trained)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "quantised": None, "made_of": None}

    def _copied(self, *args: Any) -> Any:
        new = super()._copied(*args)
        vars(new).update(quantised=None, made_of=None)
        return new


KIND = FusedInt8Linear


def is_candidate(module: nn.Module) -> bool:
    return type(module) is nn.Linear and module.weight.dtype in DTYPES


def recognise(module: nn.Linear) -> str | None:
    """Why a candidate stays as it is, or None."""
    weight = module.weight
    if type(weight) is not nn.Parameter:
        return f"its weight is a {type(weight).__name__}"
    if weight.device.type == "meta":
        return "its weight is not loaded (device meta)"
    if module.bias is not None and module.bias.dtype != weight.dtype:
        return "its bias has another dtype than its weight"
    if weight.numel() < SMALLEST:
        return f"its weight has fewer than {SMALLEST} elements, for which int8 gains nothing"
    if not bool(torch.isfinite(cast(Tensor, weight)).all()):
        return "its weight holds a NaN or an infinity"
    return None
