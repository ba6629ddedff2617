# SPDX-License-Identifier: Apache-2.0
"""Activation layers: gated ones, ``x [..., 2d] -> [..., d]``, and pointwise ones.

Every layer raises TypeError for an ``x`` that is not a floating point tensor, and a gated one
ValueError for an odd last dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..custom_op import CustomOp
from ..ops import _checks as check
from ..ops import activation as _ops
from ..ops._define import Op

_silu_and_mul: Callable[[Tensor], Tensor] = _ops.silu_and_mul.call
_mul_and_silu: Callable[[Tensor], Tensor] = _ops.mul_and_silu.call
_gelu_and_mul: Callable[[Tensor, str], Tensor] = _ops.gelu_and_mul.call
_fatrelu_and_mul: Callable[[Tensor, float], Tensor] = _ops.fatrelu_and_mul.call
_silu_and_mul_with_clamp: Callable[[Tensor, float], Tensor] = _ops.silu_and_mul_with_clamp.call
_swigluoai_and_mul: Callable[[Tensor, float, float], Tensor] = _ops.swigluoai_and_mul.call
_xielu: Callable[[Tensor, Tensor, Tensor, float, float], Tensor] = _ops.xielu.call


@CustomOp.register("silu_and_mul")
class SiluAndMul(CustomOp):
    """SwiGLU: ``silu(x[..., :d]) * x[..., d:]`` (arXiv:2002.05202)."""

    ops = ("silu_and_mul",)

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, _ops.silu_and_mul.checked_native(x))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _silu_and_mul(x)


@CustomOp.register("mul_and_silu")
class MulAndSilu(CustomOp):
    """SwiGLU with the gate in the second half: ``x[..., :d] * silu(x[..., d:])``."""

    ops = ("mul_and_silu",)

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, _ops.mul_and_silu.checked_native(x))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _mul_and_silu(x)


@CustomOp.register("gelu_and_mul")
class GeluAndMul(CustomOp):
    """GEGLU: ``gelu(x[..., :d]) * x[..., d:]`` (arXiv:2002.05202).

    Args:
        approximate: ``"none"`` for the erf form, ``"tanh"`` for the tanh form.

    Raises:
        ValueError: another ``approximate``.
    """

    ops = ("gelu_and_mul",)

    def __init__(self, approximate: str = "none", *, enabled: bool | None = None) -> None:
        _ops.check_approximate("gelu_and_mul", approximate)
        super().__init__(enabled=enabled)
        self.approximate = approximate

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, _ops.gelu_and_mul.checked_native(x, self.approximate))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _gelu_and_mul(x, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}, {super().extra_repr()}"


@CustomOp.register("fatrelu_and_mul")
class FatreluAndMul(CustomOp):
    """``fatrelu(x[..., :d]) * x[..., d:]`` with ``fatrelu(a) = 0 if a <= threshold else a``.

    The gate of sparsified models (ProSparse, arXiv:2402.13516); with a threshold of 0 it is ReGLU.

    Args:
        threshold: gates up to and including it are 0.
    """

    ops = ("fatrelu_and_mul",)

    def __init__(self, threshold: float = 0.0, *, enabled: bool | None = None) -> None:
        check.number("fatrelu_and_mul", "threshold", threshold)
        super().__init__(enabled=enabled)
        self.threshold = float(threshold)

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, _ops.fatrelu_and_mul.checked_native(x, self.threshold))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _fatrelu_and_mul(x, self.threshold)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, {super().extra_repr()}"


@CustomOp.register("silu_and_mul_with_clamp")
class SiluAndMulWithClamp(CustomOp):
    """``silu(min(x[..., :d], limit)) * clamp(x[..., d:], -limit, limit)``.

    Args:
        limit: above 0, as ``swiglu_limit`` in model configurations.
    """

    ops = ("silu_and_mul_with_clamp",)

    def __init__(self, limit: float, *, enabled: bool | None = None) -> None:
        _ops.check_limit("silu_and_mul_with_clamp", limit)
        super().__init__(enabled=enabled)
        self.limit = float(limit)

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, _ops.silu_and_mul_with_clamp.checked_native(x, self.limit))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _silu_and_mul_with_clamp(x, self.limit)

    def extra_repr(self) -> str:
        return f"limit={self.limit}, {super().extra_repr()}"


@CustomOp.register("swigluoai_and_mul")
class SwigluOAIAndMul(CustomOp):
    """The gate of gpt-oss, with gate and up interleaved in the last dimension.

    ``g = min(x[..., ::2], limit)``, ``u = clamp(x[..., 1::2], -limit, limit)``,
    ``(u + 1) * g * sigmoid(alpha * g)`` (arXiv:2508.10925).

    Args:
        alpha: inside the sigmoid.
        limit: above 0.
    """

    ops = ("swigluoai_and_mul",)

    def __init__(
        self, alpha: float = 1.702, limit: float = 7.0, *, enabled: bool | None = None
    ) -> None:
        check.number("swigluoai_and_mul", "alpha", alpha)
        _ops.check_limit("swigluoai_and_mul", limit)
        super().__init__(enabled=enabled)
        self.alpha = float(alpha)
        self.limit = float(limit)

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, _ops.swigluoai_and_mul.checked_native(x, self.alpha, self.limit))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _swigluoai_and_mul(x, self.alpha, self.limit)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, limit={self.limit}, {super().extra_repr()}"


class _Pointwise(CustomOp):
    """``x [...] -> [...]``, fp32 inside, one rounding."""

    op: Op

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.op.checked_native(x))

    def forward_kernel(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.op.call(x))


@CustomOp.register("gelu")
class GELU(_Pointwise):
    """``x Phi(x)``, the erf form (arXiv:1606.08415), free of the cancellation of ``1 + erf``."""

    ops = ("gelu",)
    op = _ops.gelu


@CustomOp.register("gelu_tanh")
class GELUTanh(_Pointwise):
    """The tanh form of GELU (arXiv:1606.08415), free of the cancellation of ``1 + tanh``."""

    ops = ("gelu_tanh",)
    op = _ops.gelu_tanh


@CustomOp.register("gelu_new")
class NewGELU(_Pointwise):
    """The same function as :class:`GELUTanh`, under the name that GPT-2 configurations use."""

    ops = ("gelu_new",)
    op = _ops.gelu_new


@CustomOp.register("gelu_fast")
class FastGELU(_Pointwise):
    """``x * sigmoid(2u)``, ``u = 0.7978845608 x (1 + 0.044715 x^2)``."""

    ops = ("gelu_fast",)
    op = _ops.gelu_fast


@CustomOp.register("quick_gelu")
class QuickGELU(_Pointwise):
    """``x * sigmoid(1.702 x)``, as in CLIP."""

    ops = ("quick_gelu",)
    op = _ops.quick_gelu


@CustomOp.register("relu2")
class ReLUSquared(_Pointwise):
    """``relu(x)^2`` (Primer, arXiv:2109.08668)."""

    ops = ("relu2",)
    op = _ops.relu2


def _inverse_softplus(name: str, value: float, above: float) -> float:
    if not value > above:
        raise ValueError(f"xielu: {name} must be above {above}, got {value}")
    return float(torch.log(torch.expm1(torch.tensor(value - above, dtype=torch.float64))))


@CustomOp.register("xielu")
class XIELU(CustomOp):
    """xIELU (arXiv:2411.13010), with the state dict of ``transformers``' ``XIELUActivation``.

    ``p = softplus(alpha_p)``, ``n = beta + softplus(alpha_n)``; ``p x^2 + beta x`` where ``x > 0``,
    else ``n (expm1(min(x, eps)) - x) + beta x``.

    Args:
        alpha_p_init: the initial ``p``, above 0.
        alpha_n_init: the initial ``n``, above ``beta``.
        beta, eps: constants. A state dict that is loaded brings its own, as it does elsewhere.
        dtype, device: of the two parameters and the two buffers, one element each.

    Raises:
        ValueError: an initial value that no parameter gives.
    """

    ops = ("xielu",)

    alpha_p: nn.Parameter
    alpha_n: nn.Parameter
    beta: Tensor
    eps: Tensor

    def __init__(
        self,
        alpha_p_init: float = 0.8,
        alpha_n_init: float = 0.8,
        beta: float = 0.5,
        eps: float = -1e-6,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        *,
        enabled: bool | None = None,
    ) -> None:
        given = (alpha_p_init, alpha_n_init, beta, eps)
        for name, value in zip(("alpha_p_init", "alpha_n_init", "beta", "eps"), given, strict=True):
            check.number("xielu", name, value)
        check.parameter_dtype("xielu", dtype)
        start_p = _inverse_softplus("alpha_p_init", alpha_p_init, 0.0)
        start_n = _inverse_softplus("alpha_n_init", alpha_n_init, beta)
        super().__init__(enabled=enabled)
        self.alpha_p = nn.Parameter(torch.tensor([start_p], dtype=dtype, device=device))
        self.alpha_n = nn.Parameter(torch.tensor([start_n], dtype=dtype, device=device))
        self.register_buffer("beta", torch.tensor(beta, dtype=dtype, device=device))
        self.register_buffer("eps", torch.tensor(eps, dtype=dtype, device=device))
        # The operator takes numbers: reading the buffers per call would wait for the device.
        self._beta = float(beta)
        self._eps = float(eps)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if prefix + "beta" in state_dict and not self.beta.is_meta:
            self._beta = float(self.beta)
        if prefix + "eps" in state_dict and not self.eps.is_meta:
            self._eps = float(self.eps)

    def forward_native(self, x: Tensor) -> Tensor:
        return cast(
            Tensor,
            _ops.xielu.checked_native(x, self.alpha_p, self.alpha_n, self._beta, self._eps),
        )

    def forward_kernel(self, x: Tensor) -> Tensor:
        return _xielu(x, self.alpha_p, self.alpha_n, self._beta, self._eps)

    def extra_repr(self) -> str:
        return f"beta={self._beta}, eps={self._eps}, {super().extra_repr()}"


class ScaledActivation(nn.Module):
    """Any activation, divided by a learned scale for every channel, as quantised models store it.

    ``act(x) / scales``, in the dtype of the activation's output.

    Args:
        act: the activation module.
        size: channels, the last dimension of the activation's output.
        dtype, device: of the parameter ``scales``.
    """

    def __init__(
        self,
        act: nn.Module,
        size: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(act, nn.Module):
            raise TypeError(
                f"scaled_activation: act must be a torch.nn.Module, got {type(act).__name__}"
            )
        check.size("scaled_activation", "size", size)
        check.parameter_dtype("scaled_activation", dtype)
        super().__init__()
        self.act = act
        self.scales = nn.Parameter(torch.ones(size, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        activated: Tensor = self.act(x)
        size = self.scales.shape[0]
        if activated.dim() == 0 or activated.shape[-1] != size:
            raise ValueError(
                f"scaled_activation: the activation must have {size} elements in the last "
                f"dimension, got {activated.shape[-1] if activated.dim() else 'no dimension'}"
            )
        return (activated / self.scales).to(activated.dtype)

    def extra_repr(self) -> str:
        return f"size={self.scales.shape[0]}"
