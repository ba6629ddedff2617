# SPDX-License-Identifier: Apache-2.0
"""Norm operators: schemas, checks and fakes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..reference import layernorm as reference
from . import _checks as check
from ._define import define


def _norm(op: str, x: Any, weight: Any, eps: Any) -> None:
    check.floating(op, "x", x)
    check.rank_at_least(op, "x", x, 1)
    check.vector(op, "weight", weight, x.shape[-1], "x", x)
    check.epsilon(op, eps)


def check_variance_size(op: str, variance_size: Any, columns: Any) -> None:
    check.integer(op, "variance_size", variance_size)
    if not 0 < variance_size <= columns:
        raise ValueError(
            f"{op}: variance_size must be between 1 and {columns}, got {variance_size}"
        )


def _rms(
    op: str,
    x: Any,
    weight: Any,
    eps: Any,
    variance_size: Any,
    weight_offset: Any,
    round_before_weight: Any,
) -> None:
    _norm(op, x, weight, eps)
    if variance_size is not None:
        check_variance_size(op, variance_size, x.shape[-1])
    check.number(op, "weight_offset", weight_offset)
    check.boolean(op, "round_before_weight", round_before_weight)


def _same(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _check_rms_norm(
    x: Any,
    weight: Any,
    eps: Any,
    variance_size: Any = None,
    weight_offset: Any = 0.0,
    round_before_weight: Any = True,
) -> None:
    _rms("rms_norm", x, weight, eps, variance_size, weight_offset, round_before_weight)


_RMS_ARGUMENTS = (
    "Tensor? weight, float eps, int? variance_size=None, float weight_offset=0.0, "
    "bool round_before_weight=True"
)

rms_norm = define(
    f"rms_norm(Tensor x, {_RMS_ARGUMENTS}) -> Tensor",
    native=reference.rms_norm,
    check=_check_rms_norm,
    fake=_same,
)


def _residual(op: str, x: Any, residual: Any) -> None:
    check.tensor(op, "residual", residual)
    check.same_shape(op, "residual", residual, x)
    check.same_dtype(op, "residual", residual, x)
    check.same_device(op, "residual", residual, "x", x)


def _check_fused_add_rms_norm(
    x: Any,
    residual: Any,
    weight: Any,
    eps: Any,
    variance_size: Any = None,
    weight_offset: Any = 0.0,
    round_before_weight: Any = True,
) -> None:
    _rms("fused_add_rms_norm", x, weight, eps, variance_size, weight_offset, round_before_weight)
    _residual("fused_add_rms_norm", x, residual)


fused_add_rms_norm = define(
    f"fused_add_rms_norm(Tensor x, Tensor residual, {_RMS_ARGUMENTS}) -> (Tensor, Tensor)",
    native=reference.fused_add_rms_norm,
    check=_check_fused_add_rms_norm,
    fake=lambda x, *_: (_same(x), _same(x)),
)


def _check_rms_norm_(
    x: Any,
    weight: Any,
    eps: Any,
    variance_size: Any = None,
    weight_offset: Any = 0.0,
    round_before_weight: Any = True,
) -> None:
    _rms("rms_norm_", x, weight, eps, variance_size, weight_offset, round_before_weight)
    check.writable("rms_norm_", "x", x)
    check.apart("rms_norm_", "weight", weight, "x", x)


def _rms_norm_(x: Tensor, *args: Any) -> None:
    x.copy_(reference.rms_norm(x, *args))


rms_norm_ = define(
    f"rms_norm_(Tensor(a!) x, {_RMS_ARGUMENTS}) -> ()",
    native=_rms_norm_,
    check=_check_rms_norm_,
    fake=lambda *_: None,
    differentiable=False,
)


def _check_fused_add_rms_norm_(
    x: Any,
    residual: Any,
    weight: Any,
    eps: Any,
    variance_size: Any = None,
    weight_offset: Any = 0.0,
    round_before_weight: Any = True,
) -> None:
    _rms("fused_add_rms_norm_", x, weight, eps, variance_size, weight_offset, round_before_weight)
    _residual("fused_add_rms_norm_", x, residual)
    for name, written in (("x", x), ("residual", residual)):
        check.writable("fused_add_rms_norm_", name, written)
    for name, written in (("x", x), ("residual", residual)):
        check.apart("fused_add_rms_norm_", "weight", weight, name, written)


def _fused_add_rms_norm_(x: Tensor, residual: Tensor, *args: Any) -> None:
    normed, total = reference.fused_add_rms_norm(x, residual, *args)
    x.copy_(normed)
    residual.copy_(total)


fused_add_rms_norm_ = define(
    f"fused_add_rms_norm_(Tensor(a!) x, Tensor(b!) residual, {_RMS_ARGUMENTS}) -> ()",
    native=_fused_add_rms_norm_,
    check=_check_fused_add_rms_norm_,
    fake=lambda *_: None,
    differentiable=False,
)


def _check_layer_norm(x: Any, weight: Any, bias: Any, eps: Any) -> None:
    _norm("layer_norm", x, weight, eps)
    check.vector("layer_norm", "bias", bias, x.shape[-1], "x", x)


layer_norm = define(
    "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor",
    native=reference.layer_norm,
    check=_check_layer_norm,
    fake=_same,
)


def _check_rms_norm_gated(
    x: Any,
    gate: Any,
    weight: Any,
    eps: Any,
    group_size: Any = None,
    norm_before_gate: Any = True,
) -> None:
    op = "rms_norm_gated"
    _norm(op, x, weight, eps)
    if gate is not None:
        check.floating(op, "gate", gate)
        check.same_shape(op, "gate", gate, x)
        check.same_device(op, "gate", gate, "x", x)
    if group_size is not None:
        check.integer(op, "group_size", group_size)
        if group_size < 1 or x.shape[-1] % group_size:
            raise ValueError(
                f"{op}: group_size must divide the last dimension, {x.shape[-1]}, got {group_size}"
            )
    check.boolean(op, "norm_before_gate", norm_before_gate)


rms_norm_gated = define(
    "rms_norm_gated(Tensor x, Tensor? gate, Tensor? weight, float eps, int? group_size=None, "
    "bool norm_before_gate=True) -> Tensor",
    native=reference.rms_norm_gated,
    check=_check_rms_norm_gated,
    fake=_same,
)
