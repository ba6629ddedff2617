# SPDX-License-Identifier: Apache-2.0
"""What the contract asks of every kernel besides parity, each as a function that raises
AssertionError."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .. import backends
from ..ops import OPS, Op
from ..ops._gradient import mutated_places
from .cases import Case, Device, cases
from .parity import flat

INVARIANT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""fp64 is for oracles; the promise of equal bits is for the dtypes that models run in."""

HALF = (torch.bfloat16, torch.float16)

ROWS = frozenset({"x", "residual", "gate", "positions", "query", "key"})
"""The arguments that have a row per token in their first dimension."""


def invariant_dtypes(op: Op) -> tuple[torch.dtype, ...]:
    """The dtypes in which an operator's rows must not depend on each other.

    A backend may leave ``linear`` to torch in some, or for many rows; torch's own changes with the
    number of rows.
    """
    if op.name != "linear":
        return INVARIANT_DTYPES
    paths = {dtype: backends.linear_path(backends.choose().name, dtype) for dtype in HALF}
    return tuple(
        dtype
        for dtype, path in paths.items()
        if path is None or (path.kernel and path.most_rows is None)
    )


def argument_names(op: Op) -> list[str]:
    return [argument.name for argument in op.overload._schema.arguments]


def cases_of(op: Op) -> tuple[Case, ...]:
    """The cases of an operator; an in-place one takes those of its functional twin."""
    return cases(op.name) or cases(op.name.removesuffix("_"))


def small_case(op: Op) -> Case:
    """The first case with several rows and few elements, for checks that run once."""
    for case in cases_of(op):
        sizes = [value.numel() for value in case.args(torch.float32, "cpu") if _is(value)]
        if sizes and 0 < sizes[0] <= 20_000 and _rows(op, case.args(torch.float32, "cpu")) > 1:
            return case
    raise AssertionError(f"{op.name}: the case table has no small case")


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)


def _rows(op: Op, args: tuple[Any, ...]) -> int:
    """How many tokens the first row-wise argument has; 0 where slicing them is not simple."""
    for name, value in zip(argument_names(op), args, strict=False):
        if name in ROWS and _is(value) and value.dim() >= (1 if name == "positions" else 2):
            return int(value.shape[0])
    return 0


def _take(op: Op, args: tuple[Any, ...], index: slice) -> tuple[Any, ...]:
    """The call for some rows only."""
    rows = _rows(op, args)
    picked = []
    for name, value in zip(argument_names(op), args, strict=False):
        by_row = _is(value) and (
            name in ROWS or (name in ("cos", "sin") and value.dim() == args[0].dim() - 1)
        )
        picked.append(value[index] if by_row and value.shape[0] == rows else value)
    return tuple(picked)


def _same_bits(got: Tensor, want: Tensor, what: str) -> None:
    if not torch.equal(got.cpu().nan_to_num(nan=1.5), want.cpu().nan_to_num(nan=1.5)):
        raise AssertionError(f"{what}: not the same bits")


def sliceable(op: Op) -> Iterator[Case]:
    """Cases whose calls can be made for some of their rows."""
    # An in-place operator is held against its twin; positions of three axes have rows in their
    # second dimension.
    if op.in_place or op.name == "multimodal_rotary_embedding":
        return
    for case in cases(op.name):
        if _rows(op, case.args(torch.float32, "cpu")) >= 2:
            yield case


def check_batch_invariance(case: Case, dtype: torch.dtype, device: Device) -> None:
    """A row's result is the same bits alone, among others, at another offset, and when repeated."""
    op = OPS[case.op]
    args = case.args(dtype, device)
    whole = flat(op.overload(*args))
    for again, before in zip(flat(op.overload(*args)), whole, strict=True):
        _same_bits(again, before, f"{case} {dtype}, run twice")
    rows = _rows(op, args)
    for start, stop in ((0, 1), (rows - 1, rows), (1, rows), (0, (rows + 1) // 2)):
        part = flat(op.overload(*_take(op, args, slice(start, stop))))
        for got, full in zip(part, whole, strict=True):
            _same_bits(got, full[start:stop], f"{case} {dtype}, rows {start}:{stop} alone")


def check_gradient(op: Op, device: Device) -> None:
    """The gradients are those of the reference, bit for bit, for the same upstream gradient."""
    case = small_case(op)

    def gradients(function: Any) -> list[Tensor | None]:
        args = [
            value.detach().clone().requires_grad_()
            if _is(value) and value.is_floating_point()
            else value
            for value in case.args(torch.float32, device)
        ]
        outputs = flat(function(*args))
        wanted = [value for value in args if _is(value) and value.requires_grad]
        if not all(value.requires_grad for value in outputs):
            raise AssertionError(f"{op.name}: an output does not require a gradient")
        return list(
            torch.autograd.grad(
                outputs, wanted, [torch.ones_like(value) for value in outputs], allow_unused=True
            )
        )

    for got, want in zip(gradients(op.overload), gradients(op.native), strict=True):
        if (got is None) != (want is None):
            raise AssertionError(f"{op.name}: a gradient is missing or too many")
        if got is not None and want is not None:
            _same_bits(got, want, f"{op.name}: gradient")


def check_errors(op: Op, device: Device) -> None:
    """A tensor of a wrong dtype is refused in words, by operator and argument, on both levels; so
    is one that is to be written in place and whose elements share memory."""
    args = small_case(op).args(torch.float32, device)
    written = mutated_places(op.overload)
    for place, name in enumerate(argument_names(op)[: len(args)]):
        value = args[place]
        if not _is(value):
            continue
        wrong = value.to(torch.int16)  # which no argument of any operator is
        _check_refused(op, name, "int16", (*args[:place], wrong, *args[place + 1 :]))
        if place in written:
            expanded = value[:1].expand_as(value)
            _check_refused(op, name, "expanded", (*args[:place], expanded, *args[place + 1 :]))


def _check_refused(op: Op, name: str, what: str, args: tuple[Any, ...]) -> None:
    for call, kinds in ((op.overload, (RuntimeError,)), (op.call, (TypeError, ValueError))):
        try:
            call(*args)
        except kinds as error:
            if str(error).startswith(f"{op.name}: {name} must "):
                continue
            raise AssertionError(f"{op.name}: the error for {name} reads: {error}") from error
        except Exception as error:
            raise AssertionError(f"{op.name}: {name}: {error!r}") from error
        raise AssertionError(f"{op.name}: {name} was accepted, and it is {what}")


def check_in_place(op: Op, case: Case, dtype: torch.dtype, device: Device) -> None:
    """An operator whose name ends in ``_`` writes what its functional twin returns, into the given
    tensors whatever their strides, and nothing else."""
    twin = OPS[op.name.removesuffix("_")]
    expected = flat(twin.overload(*case.args(dtype, device)))
    args = list(case.args(dtype, device))
    schema = op.overload._schema.arguments
    written = [
        i for i, a in enumerate(schema) if a.alias_info is not None and a.alias_info.is_write
    ]
    written = [place for place in written if args[place] is not None]
    guards = []
    for place in written:
        args[place], guard = _inside_guard(args[place])
        guards.append(guard)
    kept = [value.clone() if _is(value) else value for value in args]
    if op.overload(*args) is not None:
        raise AssertionError(f"{op.name}: an in-place operator returns nothing")
    for place, value in enumerate(args):
        if _is(value) and place not in written:
            _same_bits(value, kept[place], f"{op.name} {case}: argument {place} that isn't written")
    for place, want in zip(written, expected, strict=True):
        _same_bits(args[place], want, f"{op.name} {case} {dtype}: argument {place}")
    for guard in guards:
        if not bool((guard == 7).all()):
            raise AssertionError(f"{op.name} {case}: wrote outside of its argument")


def check_shared_memory(op: Op, device: Device) -> None:
    """Where ``residual`` is ``x``, or overlaps it, the result is as if it were computed first and
    then written, ``x`` before ``residual``."""
    names = argument_names(op)
    case = small_case(op)
    rest = [v for name, v in zip(names, case.args(torch.float32, device), strict=False)][2:]

    def outcome(call: Any, shift: int) -> Tensor:
        x = case.args(torch.float32, device)[0]
        both = torch.cat((x, x[:shift] + 1)).contiguous()
        call(both[: len(x)], both[shift:], *rest)
        return both

    for shift in (0, 1):
        got, want = outcome(op.overload, shift), outcome(op.native, shift)
        torch.testing.assert_close(got, want, rtol=4e-6, atol=4e-6)


_INSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "weight": lambda written: written.view(-1, written.shape[-1])[-1],
    "key": lambda written: written,
}
"""How an argument can lie in the memory of the first one that is written."""


def check_overlap(op: Op, device: Device) -> None:
    """What lies in the memory that is written is refused by name; or, where memory belongs to a
    compiler that reads everything first, the result is as if it lay elsewhere. Query and key side
    by side in one tensor are turned."""
    names = argument_names(op)
    first = mutated_places(op.overload)[0]
    for name, inside in _INSIDE.items():
        if name not in names:
            continue
        args = list(small_case(op).args(torch.float32, device))
        args[first] = args[first].contiguous()
        args[names.index(name)] = inside(args[first])
        elsewhere = [value.clone() if _is(value) else value for value in args]
        op.overload(*elsewhere)
        try:
            op.overload(*args)
        except RuntimeError as error:
            if not str(error).startswith(f"{op.name}: {name} must not overlap {names[first]}"):
                raise AssertionError(f"{op.name}: the error for {name} reads: {error}") from error
        else:
            _same_bits(args[first], elsewhere[first], f"{op.name}: {name} inside {names[first]}")
    if "key" in names:
        args = list(small_case(op).args(torch.float32, device))
        query = args[first]
        fused = torch.stack((query, query.flip(0)), -2)
        args[first], args[names.index("key")] = fused.unbind(-2)
        apart = [value.clone() if _is(value) else value for value in args]
        op.overload(*apart)
        op.overload(*args)
        for name in ("query", "key"):
            place = names.index(name)
            _same_bits(args[place], apart[place], f"{op.name}: {name} of one tensor")


def _inside_guard(value: Tensor) -> tuple[Tensor, Tensor]:
    """A strided view with the same values, and the elements around it, all 7."""
    wide = value.new_full((*value.shape[:-1], value.shape[-1] + 9), 7)
    view = wide[..., 4:-5]
    view.copy_(value)
    return view, torch.cat((wide[..., :4], wide[..., -5:]), -1)


def check_opcheck(op: Op, device: Device) -> None:
    """Schema, fake kernel, autograd registration and AOT dispatch, by ``torch.library.opcheck``."""
    torch.library.opcheck(op.overload, small_case(op).args(torch.float32, device))
