# SPDX-License-Identifier: Apache-2.0
"""Norm layers, all over the last dimension.

``x`` may have any rank and any strides: a view ``[tokens, heads, head_size]`` of a fused
projection is read in place, so a norm over ``head_size`` is the per-head q/k norm. Inputs are not
modified, and outputs have the dtype of ``x`` whatever the dtype of the weights.

Every layer raises TypeError for an ``x`` that is not a floating point tensor, and ValueError where
a size does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..custom_op import CustomOp
from ..ops import _checks
from ..ops import layernorm as _ops

_Pair = tuple[Tensor, Tensor]

_rms_norm: Callable[..., Tensor] = _ops.rms_norm.call
_rms_norm_native: Callable[..., Tensor] = _ops.rms_norm.checked_native
_fused_add_rms_norm: Callable[..., _Pair] = _ops.fused_add_rms_norm.call
_fused_add_rms_norm_native: Callable[..., _Pair] = _ops.fused_add_rms_norm.checked_native
_layer_norm: Callable[..., Tensor] = _ops.layer_norm.call
_layer_norm_native: Callable[..., Tensor] = _ops.layer_norm.checked_native
_rms_norm_gated: Callable[..., Tensor] = _ops.rms_norm_gated.call
_rms_norm_gated_native: Callable[..., Tensor] = _ops.rms_norm_gated.checked_native


class _Norm(CustomOp):
    """What the norms share: the size, eps, and a weight that may be missing."""

    hidden_size: int
    eps: float
    weight: nn.Parameter | None

    def __init__(
        self,
        hidden_size: int,
        eps: float,
        dtype: torch.dtype | None,
        *,
        enabled: bool | None,
        **flags: bool,
    ) -> None:
        _checks.size(self.name, "hidden_size", hidden_size)
        _checks.epsilon(self.name, eps)
        _checks.parameter_dtype(self.name, dtype)
        for name, value in flags.items():
            _checks.boolean(self.name, name, value)
        super().__init__(enabled=enabled)
        self.hidden_size = hidden_size
        self.eps = float(eps)

    def _add_parameter(self, name: str, value: Tensor | None) -> None:
        self.register_parameter(name, None if value is None else nn.Parameter(value))

    def _parameter(self, name: str) -> Tensor | None:
        """A parameter, also where it is registered no more: a parametrization puts a property in
        its place, and FSDP a plain tensor."""
        try:
            return self._parameters[name]
        except KeyError:
            value: Tensor | None = getattr(self, name)
            return value

    def _check_size(self, x: Any) -> None:
        if isinstance(x, Tensor) and x.dim() and x.shape[-1] != self.hidden_size:
            raise ValueError(
                f"{self.name}: x must have {self.hidden_size} elements in the last dimension, "
                f"got {x.shape[-1]}"
            )

    def extra_repr(self) -> str:
        return f"{self.hidden_size}, eps={self.eps}, {super().extra_repr()}"


@CustomOp.register("rms_norm")
class RMSNorm(_Norm):
    """RMSNorm over the last dimension (arXiv:1910.07467), in the rounding order of Llama.

    ``forward(x)`` returns ``norm(x)``; ``forward(x, residual)`` returns ``(norm(x + residual),
    x + residual)``. ``x`` is ``[..., hidden_size]``, ``residual`` the same in shape and dtype.

    Args:
        hidden_size: the size of the last dimension.
        eps: added to the mean square. Where it is 0, a row of zeros gives zeros.
        variance_size: take the mean over the first ``variance_size`` elements only.
        has_weight: False for a norm without a weight.
        dtype, device: of the weight; it may differ from the input's dtype, the output never does.

    Raises:
        TypeError: residual has another dtype.
    """

    ops = ("rms_norm", "fused_add_rms_norm")

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
        super().__init__(hidden_size, eps, dtype, enabled=enabled, has_weight=has_weight)
        if variance_size is not None:
            _ops.check_variance_size(self.name, variance_size, hidden_size)
        self.variance_size = None if variance_size == hidden_size else variance_size
        weight = torch.ones(hidden_size, dtype=dtype, device=device) if has_weight else None
        self._add_parameter("weight", weight)

    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Tensor | _Pair:
        self._check_size(x)
        weight = self._parameter("weight")
        if residual is None:
            return _rms_norm_native(x, weight, self.eps, self.variance_size)
        return _fused_add_rms_norm_native(x, residual, weight, self.eps, self.variance_size)

    def forward_kernel(self, x: Tensor, residual: Tensor | None = None) -> Tensor | _Pair:
        # The dictionary, because attributes go through nn.Module.__getattr__, 0.04 us each; and no
        # argument that equals its default, 0.07 us each to parse.
        state = self.__dict__
        parameters, eps = state["_parameters"], state["eps"]
        try:
            weight = parameters["weight"]
        except KeyError:  # no parameter any more, see _parameter
            weight = self.weight
        if weight is None:
            self._check_size(x)
        try:
            if state["variance_size"] is not None:
                return self._partly(x, residual, weight, eps, state["variance_size"])
            if residual is None:
                return _rms_norm(x, weight, eps)
            return _fused_add_rms_norm(x, residual, weight, eps)
        except ValueError:
            self._check_size(x)  # the operator would blame the weight
            raise

    @staticmethod
    def _partly(x: Tensor, residual: Tensor | None, *rest: Any) -> Tensor | _Pair:
        if residual is None:
            return _rms_norm(x, *rest)
        return _fused_add_rms_norm(x, residual, *rest)


@CustomOp.register("gemma_rms_norm")
class GemmaRMSNorm(_Norm):
    """RMSNorm as in Gemma: scaled by ``1 + weight``, added in fp32, and rounded once, at the end.

    ``forward(x)`` returns ``norm(x)``; ``forward(x, residual)`` returns ``(norm(x + residual),
    x + residual)``, as :class:`RMSNorm`. The operator is ``rms_norm`` with a weight offset of 1.

    Args:
        hidden_size: the size of the last dimension.
        eps: added to the mean square. Where it is 0, a row of zeros gives zeros.
        dtype, device: of the weight, which starts as zeros.

    Raises:
        TypeError: residual has another dtype.
    """

    ops = ("rms_norm", "fused_add_rms_norm")

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        *,
        enabled: bool | None = None,
    ) -> None:
        super().__init__(hidden_size, eps, dtype, enabled=enabled)
        self._add_parameter("weight", torch.zeros(hidden_size, dtype=dtype, device=device))

    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Tensor | _Pair:
        self._check_size(x)
        weight = self._parameter("weight")
        if residual is None:
            return _rms_norm_native(x, weight, self.eps, None, 1.0, False)
        return _fused_add_rms_norm_native(x, residual, weight, self.eps, None, 1.0, False)

    def forward_kernel(self, x: Tensor, residual: Tensor | None = None) -> Tensor | _Pair:
        state = self.__dict__
        parameters, eps = state["_parameters"], state["eps"]
        try:
            weight = parameters["weight"]
        except KeyError:  # no parameter any more, see _parameter
            weight = self.weight
        try:
            if residual is None:
                return _rms_norm(x, weight, eps, None, 1.0, False)
            return _fused_add_rms_norm(x, residual, weight, eps, None, 1.0, False)
        except ValueError:
            self._check_size(x)
            raise


@CustomOp.register("layer_norm")
class LayerNorm(_Norm):
    """LayerNorm over the last dimension (arXiv:1607.06450), with the state dict of
    ``torch.nn.LayerNorm``.

    ``(x - mean) * rsqrt(var + eps) * weight + bias`` for ``x [..., hidden_size]``.

    Args:
        hidden_size: the size of the last dimension.
        eps: added to the biased variance. Where it is 0, a constant row gives the bias.
        elementwise_affine: False for a norm without weight and bias.
        bias: False for a norm without a bias.
        dtype, device: of weight and bias.
    """

    ops = ("layer_norm",)

    bias: nn.Parameter | None

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        *,
        enabled: bool | None = None,
    ) -> None:
        flags = {"elementwise_affine": elementwise_affine, "bias": bias}
        super().__init__(hidden_size, eps, dtype, enabled=enabled, **flags)
        affine = elementwise_affine
        weight = torch.ones(hidden_size, dtype=dtype, device=device) if affine else None
        self._add_parameter("weight", weight)
        shift = torch.zeros(hidden_size, dtype=dtype, device=device) if affine and bias else None
        self._add_parameter("bias", shift)

    def forward_native(self, x: Tensor) -> Tensor:
        self._check_size(x)
        weight, bias = self._parameter("weight"), self._parameter("bias")
        return _layer_norm_native(x, weight, bias, self.eps)

    def forward_kernel(self, x: Tensor) -> Tensor:
        weight = self._parameter("weight")
        if weight is None:
            self._check_size(x)
        try:
            return _layer_norm(x, weight, self._parameter("bias"), self.eps)
        except ValueError:
            self._check_size(x)
            raise


@CustomOp.register("rms_norm_gated")
class RMSNormGated(_Norm):
    """RMSNorm with a SiLU gate, over the last dimension or over equal groups of it, as in Mamba-2
    (arXiv:2405.21060) and in gated linear attention.

    ``forward(x, gate=None)``: with ``norm_before_gate`` ``norm(x) * silu(gate)``, without
    ``norm(x * silu(gate))``, without a gate ``norm(x)``. ``gate`` has the shape of ``x``.

    Args:
        hidden_size: the size of the last dimension.
        eps: added to the mean square. Where it is 0, a group of zeros gives zeros.
        group_size: elements that share a mean, a divisor of hidden_size; all by default.
        norm_before_gate: False where the gate comes first, as in Mamba-2.
        has_weight: False for a norm without a weight.
        dtype, device: of the weight.
    """

    ops = ("rms_norm_gated",)

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        group_size: int | None = None,
        norm_before_gate: bool = True,
        has_weight: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        *,
        enabled: bool | None = None,
    ) -> None:
        flags = {"norm_before_gate": norm_before_gate, "has_weight": has_weight}
        super().__init__(hidden_size, eps, dtype, enabled=enabled, **flags)
        if group_size is not None:
            _checks.integer(self.name, "group_size", group_size)
            if group_size < 1 or hidden_size % group_size:
                raise ValueError(
                    f"{self.name}: group_size must divide hidden_size, {hidden_size}, "
                    f"got {group_size}"
                )
        self.group_size = None if group_size == hidden_size else group_size
        self.norm_before_gate = norm_before_gate
        weight = torch.ones(hidden_size, dtype=dtype, device=device) if has_weight else None
        self._add_parameter("weight", weight)

    def forward_native(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        self._check_size(x)
        return _rms_norm_gated_native(
            x,
            gate,
            self._parameter("weight"),
            self.eps,
            self.group_size,
            self.norm_before_gate,
        )

    def forward_kernel(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        weight = self._parameter("weight")
        if weight is None:
            self._check_size(x)
        return _rms_norm_gated(x, gate, weight, self.eps, self.group_size, self.norm_before_gate)

    def extra_repr(self) -> str:
        order = "norm before gate" if self.norm_before_gate else "gate before norm"
        return f"group_size={self.group_size}, {order}, {super().extra_repr()}"
