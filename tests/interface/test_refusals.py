# SPDX-License-Identifier: Apache-2.0
"""One sentence for one mistake, whoever finds it: the functional API, the layers' reference, the
CPU kernels' binding, the reference behind ``torch.ops`` and the fake kernels of a capture."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.kernels import need_kernel
from helpers.refusals import BAD, GOOD, TABLES, reference, sentence_of
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm_ops.shared import functional
from vllm_ops.shared.ops import OPS

VALUES = [
    *((op, position) for op in TABLES for position in (-1, -(2**31))),
    *((op, position) for op in TABLES for position in (16, 2**31 - 1)),
]


def same_everywhere(op: str, arguments: tuple[Any, ...], sentence: str) -> None:
    expected = f"{op}: {sentence}"
    python = (TypeError, ValueError)
    found = {
        "functional": sentence_of(getattr(functional, op), python, arguments),
        "checked_native": sentence_of(OPS[op].checked_native, python, arguments),
        "torch.ops": sentence_of(OPS[op].overload, (RuntimeError,), arguments),
        "reference": sentence_of(reference(op), (RuntimeError,), arguments),
    }
    assert found == dict.fromkeys(found, expected)


def test_the_table_names_every_operator_and_its_arguments() -> None:
    for name, op in OPS.items():
        assert list(GOOD[name]) == [argument.name for argument in op.overload._schema.arguments]


@pytest.mark.parametrize("op", GOOD)
def test_what_is_right_is_taken(op: str) -> None:
    for call in (getattr(functional, op), OPS[op].overload, reference(op)):
        call(*(v.clone() if isinstance(v, torch.Tensor) else v for v in GOOD[op].values()))


@pytest.mark.parametrize("op", GOOD)
def test_one_sentence(op: str) -> None:
    need_kernel(op)
    for name, wrong, sentence in BAD:
        if name == op:
            arguments = tuple((GOOD[op] | wrong).values())
            same_everywhere(op, arguments, sentence)
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fake = [
                    mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
                    for value in arguments
                ]
                got = sentence_of(OPS[op].overload, (RuntimeError,), fake)
            assert got == f"{op}: {sentence}"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(("op", "position"), VALUES)
def test_one_sentence_for_positions(op: str, position: int, dtype: torch.dtype) -> None:
    need_kernel(op)
    positions = GOOD[op]["positions"].clone().to(dtype)
    positions.view(-1)[2] = position
    sentence = (
        f"positions must not be negative, got {position}"
        if position < 0
        else f"positions must be below 16, the length of the table, got {position}; ask get_rope "
        f"for max_length={position + 1} or more"
    )
    same_everywhere(op, tuple((GOOD[op] | {"positions": positions}).values()), sentence)


SCALARS = {
    "bool": ("must be True or False, got {value!r}", [1, 0, None, "yes", 1.5, torch.tensor(True)]),
    "float": ("must be a number, got {type}", ["a", None, True, 1j, torch.tensor(1.0), []]),
    "int": ("must be an int, got {type}", ["a", None, True, 4.0, torch.tensor(8)]),
}
OPTIONAL = {"variance_size": "int", "group_size": "int"}


@pytest.mark.parametrize("op", GOOD)
def test_a_scalar_of_another_type(op: str) -> None:
    """``torch.ops`` takes whatever Python can convert; the functions and the reference do not."""
    for place, argument in enumerate(OPS[op].overload._schema.arguments):
        kind = OPTIONAL.get(argument.name, str(argument.type))
        form, values = SCALARS.get(kind, ("", []))
        for value in values:
            if value is None and argument.name in OPTIONAL:
                continue
            arguments = list(GOOD[op].values())
            arguments[place] = value
            text = form.format(value=value, type=type(value).__name__)
            expected = f"{op}: {argument.name} {text}"
            for call in (getattr(functional, op), OPS[op].checked_native):
                with pytest.raises(TypeError) as caught:
                    call(*arguments)
                assert str(caught.value) == expected, (call, value)


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    x = torch.randn(4, 8)
    want = functional.rms_norm(x, None, 0.5, 4)
    for call in (functional.rms_norm, OPS["rms_norm"].checked_native):
        torch.testing.assert_close(call(x, None, numpy.float32(0.5), numpy.int64(4)), want)
