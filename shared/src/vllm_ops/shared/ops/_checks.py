# SPDX-License-Identifier: Apache-2.0
"""Checks that several operators share. Each raises an error of the form
``rms_norm: weight must have 4096 elements, got 1024``: operator, argument, allowed, given.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ._overlap import overlap, overlaps_itself

FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGRAL = (torch.int32, torch.int64)


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def tensor(op: str, name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{op}: {name} must be a torch.Tensor, got {type(value).__name__}")
    if value.layout != torch.strided or value.is_nested:
        got = "a nested tensor" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise TypeError(f"{op}: {name} must be a dense tensor (torch.strided), got {got}")


def number(op: str, name: str, value: Any) -> None:
    """A real number, one of numpy's as well, but no bool and no tensor."""
    kinds = (Real, torch.SymFloat, torch.SymInt)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"{op}: {name} must be a number, got {type(value).__name__}")


def integer(op: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (Integral, torch.SymInt)):
        raise TypeError(f"{op}: {name} must be an int, got {type(value).__name__}")


def size(op: str, name: str, value: Any) -> None:
    """An int above 0."""
    integer(op, name, value)
    if value < 1:
        raise ValueError(f"{op}: {name} must be above 0, got {value}")


def parameter_dtype(op: str, dtype: Any) -> None:
    """What a layer's parameters can be made of, or None for torch's default."""
    if dtype is not None and dtype not in FLOATING:
        got = short(dtype) if isinstance(dtype, torch.dtype) else repr(dtype)
        raise TypeError(
            f"{op}: dtype must be torch.float32, bfloat16, float16, float64 or None, got {got}"
        )


def boolean(op: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{op}: {name} must be True or False, got {value!r}")


def floating(op: str, name: str, value: Any) -> None:
    """A tensor of one of the dtypes that every device accepts."""
    tensor(op, name, value)
    if value.dtype not in FLOATING:
        raise TypeError(
            f"{op}: {name} must be floating point (float32, bfloat16, float16 or float64), "
            f"got {short(value.dtype)}"
        )


def integral(op: str, name: str, value: Any) -> None:
    tensor(op, name, value)
    if value.dtype not in INTEGRAL:
        raise TypeError(f"{op}: {name} must be int32 or int64, got {short(value.dtype)}")


def exactly(op: str, name: str, value: Any, dtype: torch.dtype) -> None:
    """A tensor of this dtype."""
    tensor(op, name, value)
    if value.dtype != dtype:
        raise TypeError(f"{op}: {name} must be {short(dtype)}, got {short(value.dtype)}")


def rank_at_least(op: str, name: str, value: Tensor, rank: int) -> None:
    if value.dim() < rank:
        raise ValueError(
            f"{op}: {name} must have at least {rank} dimension{'s' if rank > 1 else ''}, "
            f"got {value.dim()}"
        )


def activation_input(op: str, name: str, value: Any) -> None:
    floating(op, name, value)
    rank_at_least(op, name, value, 1)


def same_device(op: str, name: str, value: Tensor, of: str, other: Tensor) -> None:
    if value.device != other.device:
        raise ValueError(
            f"{op}: {name} must be on the device of {of}, {other.device}, got {value.device}"
        )


def same_shape(op: str, name: str, value: Tensor, other: Tensor) -> None:
    if value.shape != other.shape:
        raise ValueError(
            f"{op}: {name} must have shape {list(other.shape)}, got {list(value.shape)}"
        )


def same_dtype(op: str, name: str, value: Tensor, other: Tensor) -> None:
    if value.dtype != other.dtype:
        raise TypeError(f"{op}: {name} must be {short(other.dtype)}, got {short(value.dtype)}")


def epsilon(op: str, eps: Any) -> None:
    number(op, "eps", eps)
    if not eps >= 0:
        raise ValueError(f"{op}: eps must not be negative, got {eps}")


def vector(op: str, name: str, value: Any, elements: Any, of: str, other: Tensor) -> None:
    """An optional 1-D parameter such as a weight; its dtype may differ from the input's."""
    if value is None:
        return
    floating(op, name, value)
    if value.dim() != 1 or value.shape[0] != elements:
        got = value.shape[0] if value.dim() == 1 else f"shape {list(value.shape)}"
        raise ValueError(f"{op}: {name} must have {elements} elements, got {got}")
    same_device(op, name, value, of, other)


def _plain(value: Tensor) -> bool:
    """Whether the tensor's sizes and strides are numbers, and not symbols of a capture."""
    return all(type(number) is int for number in (*value.shape, *value.stride()))


def writable(op: str, name: str, value: Tensor) -> None:
    """A tensor that is written in place: no two of its elements share memory."""
    if _plain(value) and overlaps_itself(value.shape, value.stride()):
        raise ValueError(
            f"{op}: {name} must not overlap itself, as it is written in place, "
            f"got shape {list(value.shape)} and strides {list(value.stride())}"
        )


def apart(op: str, name: str, value: Tensor | None, of: str, written: Tensor) -> None:
    """A tensor that shares no memory with ``written``, the argument ``of``.

    Tensors without an address are not looked at: those of a capture, of a function transform, and
    of devices whose memory belongs to a compiler, which reads everything before it writes.
    """
    if value is None or value.device != written.device:
        return
    if torch.compiler.is_compiling() or isinstance(written, FakeTensor):
        return
    try:
        shared = overlap(value, written)
    except (RuntimeError, NotImplementedError):
        return
    if shared:
        raise ValueError(f"{op}: {name} must not overlap {of}, which is written in place")
