# SPDX-License-Identifier: Apache-2.0
"""Checks that several operators share. Each raises an error of the form
``rms_norm: weight must have 4096 elements, got 1024``: operator, argument, allowed, given.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
    if isinstance(value, bool) or not isinstance(value, (int, float, torch.SymFloat, torch.SymInt)):
        raise TypeError(f"{op}: {name} must be a number, got {type(value).__name__}")


def integer(op: str, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"{op}: {name} must be an int, got {type(value).__name__}")


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


def writable(op: str, name: str, value: Tensor) -> None:
    """A tensor that is written in place: each of its elements has memory of its own."""
    if value.numel() == 0:
        return
    if any(step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True)):
        raise ValueError(
            f"{op}: {name} must not be expanded, as it is written in place, "
            f"got strides {list(value.stride())}"
        )
