# SPDX-License-Identifier: Apache-2.0
"""The functional API: every operator, documented, with the schema's arguments, and its contract."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm_ops.shared import functional
from vllm_ops.shared.ops import OPS, Op
from vllm_ops.shared.testing import flat
from vllm_ops.shared.testing.checks import check_in_place, small_case

from .helpers import tensor

FUNCTIONAL = [op for op in OPS.values() if not op.in_place]
IN_PLACE = [op for op in OPS.values() if op.in_place]


def name(op: Op) -> str:
    return op.name


def test_one_function_per_operator() -> None:
    assert sorted(functional.__all__) == sorted(OPS)


@pytest.mark.parametrize("op", OPS.values(), ids=name)
def test_signature_is_the_schema(op: Op) -> None:
    parameters = inspect.signature(getattr(functional, op.name)).parameters.values()
    arguments = op.overload._schema.arguments
    assert [p.name for p in parameters] == [a.name for a in arguments]
    for parameter, argument in zip(parameters, arguments, strict=True):
        given = None if parameter.default is inspect.Parameter.empty else parameter.default
        assert given == argument.default_value, parameter.name
        has_default = parameter.default is not inspect.Parameter.empty
        assert has_default == argument.has_default_value(), parameter.name


@pytest.mark.parametrize("op", OPS.values(), ids=name)
def test_documented(op: Op) -> None:
    text = inspect.getdoc(getattr(functional, op.name)) or ""
    assert "Args:" in text
    assert "Raises:" in text
    assert "Returns:" in text or op.in_place
    for argument in op.overload._schema.arguments:
        assert argument.name in text, argument.name


@pytest.mark.parametrize("op", FUNCTIONAL, ids=name)
def test_equals_the_operator_and_leaves_inputs_alone(op: Op) -> None:
    args = small_case(op).args(torch.bfloat16, "cpu")
    kept = [value.clone() if isinstance(value, Tensor) else value for value in args]
    names = [argument.name for argument in op.overload._schema.arguments]
    outputs = flat(getattr(functional, op.name)(**dict(zip(names, args, strict=False))))
    for got, want in zip(outputs, flat(op.overload(*args)), strict=True):
        assert torch.equal(got, want)
        assert got.is_contiguous()
        assert not any(
            isinstance(value, Tensor)
            and value.untyped_storage().data_ptr() == got.untyped_storage().data_ptr()
            for value in args
        )
    for before, after in zip(kept, args, strict=True):
        if isinstance(before, Tensor):
            assert torch.equal(before, after)


def test_every_in_place_operator_has_a_functional_twin() -> None:
    assert IN_PLACE
    for op in IN_PLACE:
        assert op.name.endswith("_")
        twin = OPS[op.name.removesuffix("_")]
        names = [argument.name for argument in op.overload._schema.arguments]
        assert names == [argument.name for argument in twin.overload._schema.arguments]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", IN_PLACE, ids=name)
def test_in_place_writes_what_the_twin_returns(op: Op, dtype: torch.dtype) -> None:
    check_in_place(op, small_case(op), dtype, "cpu")


def test_in_place_is_the_same_in_every_mode() -> None:
    weight = tensor(8, seed=1)
    expected = functional.rms_norm(tensor(3, 8), weight, 1e-6)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            x = tensor(3, 8)
            assert functional.rms_norm_(x, weight, 1e-6) is None  # type: ignore[func-returns-value]
            assert torch.equal(x, expected)


def test_in_place_refuses_to_lose_a_gradient() -> None:
    x = tensor(3, 8)
    weight = tensor(8).requires_grad_()
    for call in (functional.rms_norm_, torch.ops.vllm_ops.rms_norm_):
        with pytest.raises(RuntimeError, match="rms_norm_: weight must not require a gradient"):
            call(x, weight, 1e-6)
    with torch.no_grad():
        functional.rms_norm_(x, weight, 1e-6)


@pytest.mark.parametrize("call", [functional.rms_norm_, torch.ops.vllm_ops.rms_norm_])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_in_place_writes_are_counted(call: Any, mode: Any) -> None:
    # A tensor that was saved for a backward pass and overwritten since must be found out.
    x, factor = tensor(3, 8), tensor(3, 8, seed=1).requires_grad_()
    product = (x * factor).sum()
    with mode():
        call(x, None, 1e-6)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
