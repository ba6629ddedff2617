# SPDX-License-Identifier: Apache-2.0
"""Is a kernel further from the exact result than the reference is?

The exact result is the reference run in fp64, where its roundings are 2^29 times finer than in
fp32. Errors are counted in ulps of the output dtype, taken at the exact result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..ops import OPS
from .accuracy_subjects import CHAIN_LENGTH, SUBJECTS, Subject
from .parity import flat

Run = Callable[..., Any]

FLOOR = {torch.float32: 2.0**-100, torch.bfloat16: 2.0**-100, torch.float16: 0.0}
"""Below this magnitude errors count as at it. e^88.8 overflows in fp32, so eager torch returns 0
for silu(-89) = -2e-37, an error of millions of ulps of a number that no sum will ever notice."""

LARGEST_SLACK = {torch.float32: 0.25, torch.bfloat16: 0.01, torch.float16: 0.01}
"""Ulps by which the largest error may exceed the reference's. In half precision that error is half
an ulp plus what fp32 adds, so only the fp32 part, below 1/1000 ulp, can differ. In fp32 the largest
of some 10^5 errors is itself a sample: two correct orders of one sum differ in it by about a fifth
of an ulp."""

MEAN_SLACK = 0.002
"""Share by which the mean error may exceed the reference's: the standard error of the mean of 10^5
errors is 0.2 %."""

SIGMAS = 5.0
"""Standard errors by which the signed means may exceed the reference's."""

CHAIN_LARGEST_SLACK = 0.3
CHAIN_MEAN_SLACK = 0.03
"""Shares, after a chain of applications. One flipped rounding changes every later one, so the two
ends are different samples: the largest of 65,536 errors varies by a quarter between starts, the
mean by 1 %, as errors within one row depend on each other."""


@dataclass(frozen=True)
class Errors:
    """What is left between a result and the exact one, in ulps.

    Attributes:
        largest: the largest magnitude.
        mean: the mean magnitude.
        bias: the mean with its sign.
        growth: the mean with the sign that makes too large a magnitude positive: a rounding towards
        zero has it even where the signs of the results are balanced.
        noise: the standard error of the two.
    """

    largest: float
    mean: float
    bias: float
    growth: float
    noise: float

    def __str__(self) -> str:
        return (
            f"largest {self.largest:.4f}, mean {self.mean:.5f}, signed mean {self.bias:+.6f}, "
            f"in magnitude {self.growth:+.6f} ulp"
        )


def ulp(exact: Tensor, dtype: torch.dtype, floor: float = 0.0) -> Tensor:
    """The spacing of the numbers of ``dtype`` at each fp64 value, at least that at ``floor``."""
    info = torch.finfo(dtype)
    magnitude = exact.abs().clamp(min=max(info.smallest_normal, floor))
    _, exponent = torch.frexp(magnitude)
    return torch.ldexp(torch.full_like(exact, info.eps), exponent - 1)


def errors(actual: Tensor, exact: Tensor, floor: float = 0.0) -> Errors:
    """The errors of ``actual`` against fp64 ``exact`` over the elements where ``actual`` is
    finite."""
    here = torch.isfinite(actual) & torch.isfinite(exact)
    exact = exact[here]
    signed = (actual[here].double() - exact) / ulp(exact, actual.dtype, floor)
    if signed.numel() < 2:
        return Errors(0.0, 0.0, 0.0, 0.0, 0.0)
    return Errors(
        largest=signed.abs().max().item(),
        mean=signed.abs().mean().item(),
        bias=signed.mean().item(),
        growth=(signed * exact.sign()).mean().item(),
        noise=signed.pow(2).mean().sqrt().item() / signed.numel() ** 0.5,
    )


def _double(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for value in args
    )


def _judge(
    what: str, kernel: Errors, native: Errors, largest_allowed: float, mean_slack: float
) -> None:
    noise = SIGMAS * (kernel.noise**2 + native.noise**2) ** 0.5
    mean_allowed = native.mean * (1 + mean_slack) + 1e-6
    worse = []
    if kernel.largest > largest_allowed:
        worse.append("largest error")
    if kernel.mean > mean_allowed:
        worse.append("mean error")
    if abs(kernel.bias) > abs(native.bias) + noise:
        worse.append("signed mean")
    if abs(kernel.growth) > abs(native.growth) + noise:
        worse.append("signed mean in magnitude")
    if worse:
        raise AssertionError(
            f"{what}: worse than native in {', '.join(worse)}\n"
            f"  kernel {kernel}\n  native {native}\n"
            f"  allowed: largest {largest_allowed:.4f}, mean {mean_allowed:.5f}, "
            f"signed means {noise:.6f} more"
        )


def check_accuracy(
    subject: Subject,
    regime: str,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    run: Run | None = None,
) -> tuple[Errors, Errors]:
    """Raise AssertionError if a kernel is further from fp64 than the reference, after one call.

    Args:
        run: what to judge; the operator through ``torch.ops`` by default.

    Returns:
        The errors of the kernel and of the reference, the worse output of an operator with two.
    """
    op = OPS[subject.op]
    args = subject.args(regime, dtype, device)
    found = []
    outputs = zip(
        flat((run or op.overload)(*args)),
        flat(op.native(*args)),
        flat(op.native(*_double(args))),
        strict=True,
    )
    for place, (actual, native, exact) in enumerate(outputs):
        what = f"{subject} {regime} {dtype} output {place}"
        if not torch.equal(torch.isfinite(actual), torch.isfinite(native)):
            raise AssertionError(f"{what}: NaN or infinity in other places than native")
        floor = max(FLOOR[dtype], subject.floor)
        ours, theirs = errors(actual, exact, floor), errors(native, exact, floor)
        _judge(what, ours, theirs, theirs.largest + LARGEST_SLACK[dtype], MEAN_SLACK)
        found.append((ours, theirs))
    return max(found, key=lambda pair: pair[0].largest)


def check_chain(
    subject: Subject,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    run: Run | None = None,
) -> tuple[Errors, Errors]:
    """The same after 72 applications, each added to what it was applied to, as in a deep model."""
    op = OPS[subject.op]
    start = subject.chain_start(dtype, device)
    actual = subject.chain(run or op.overload, start, CHAIN_LENGTH)
    native = subject.chain(op.native, start, CHAIN_LENGTH)
    exact = subject.chain(op.native, start.double(), CHAIN_LENGTH)
    floor = exact.pow(2).mean().sqrt().item()
    ours, theirs = errors(actual, exact, floor), errors(native, exact, floor)
    largest = theirs.largest * (1 + CHAIN_LARGEST_SLACK)
    _judge(f"{subject} {dtype} after {CHAIN_LENGTH}", ours, theirs, largest, CHAIN_MEAN_SLACK)
    return ours, theirs


__all__ = ["SUBJECTS", "Errors", "Subject", "check_accuracy", "check_chain", "errors", "ulp"]
