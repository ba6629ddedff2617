# SPDX-License-Identifier: Apache-2.0
"""Is a kernel further from the exact result than the reference is?

The exact result is the reference run in fp64, where its roundings are 2^29 times finer than in
fp32. Errors are counted in ulps of the output dtype, taken at the exact result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import _table, backends
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

LARGEST_SHARE = 0.05
"""Share by which it may, for the tails: there an error of the argument of exp comes out multiplied
by that argument, up to 88, and the largest is that of a few elements."""

MEAN_SLACK = 0.005
"""Share by which the mean error may exceed the reference's: the standard error of the mean of
65,536 errors is 0.25 %."""

SIGMAS = 5.0
"""Standard errors by which the signed means may exceed the reference's."""

CHAIN_LARGEST_SLACK = 0.1
CHAIN_MEAN_SLACK = 0.03
"""Shares, after a chain of applications, of the mean over the rows of each row's largest error and
of the mean error. One flipped rounding changes every later one, so the two ends are different
samples, which between starts differ by up to 8 % and 1.5 %."""


@dataclass(frozen=True)
class Errors:
    """What is left between a result and the exact one, in ulps.

    Attributes:
        largest: the largest magnitude.
        row_largest: the mean over the rows of each row's largest magnitude.
        mean: the mean magnitude.
        bias: the mean with its sign.
        growth: the mean with the sign that makes too large a magnitude positive: a rounding towards
        zero has it even where the signs of the results are balanced.
        noise: the standard error of the two.
    """

    largest: float
    row_largest: float
    mean: float
    bias: float
    growth: float
    noise: float

    def __str__(self) -> str:
        return (
            f"largest {self.largest:.4f} (of a row {self.row_largest:.4f}), mean {self.mean:.5f}, "
            f"signed mean {self.bias:+.6f}, in magnitude {self.growth:+.6f} ulp"
        )


def ulp(exact: Tensor, dtype: torch.dtype, floor: float = 0.0) -> Tensor:
    """The spacing of the numbers of ``dtype`` at each fp64 value, at least that at ``floor``."""
    info = torch.finfo(dtype)
    magnitude = exact.abs().clamp(min=max(info.smallest_normal, floor))
    _, exponent = torch.frexp(magnitude)
    return torch.ldexp(torch.full_like(exact, info.eps), exponent - 1)


def errors(
    actual: Tensor, exact: Tensor, floor: float = 0.0, dtype: torch.dtype | None = None
) -> Errors:
    """The errors of ``actual [rows, columns]`` against fp64 ``exact``; what isn't finite has none.

    Rows are taken as independent of each other; there must be at least two. The ulps are those of
    ``dtype``, by default that of ``actual``.
    """
    here = torch.isfinite(actual) & torch.isfinite(exact)
    exact = torch.where(here, exact, 0.0)
    signed = (torch.where(here, actual, 0).double() - exact) / ulp(
        exact, dtype or actual.dtype, floor
    )
    grown = signed * exact.sign()
    # An error of a row's mean square is an error of the whole row, so rows are what is independent.
    per_row = torch.stack((signed.mean(-1).flatten(), grown.mean(-1).flatten()))
    return Errors(
        largest=signed.abs().max().item(),
        row_largest=signed.abs().amax(-1).mean().item(),
        mean=signed.abs().mean().item(),
        bias=signed.mean().item(),
        growth=grown.mean().item(),
        noise=per_row.std(dim=-1).max().item() / per_row.shape[-1] ** 0.5,
    )


def _double(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for value in args
    )


def _judge(
    what: str, kernel: Errors, native: Errors, largest: tuple[str, float], mean_slack: float
) -> None:
    which, largest_allowed = largest
    noise = SIGMAS * (kernel.noise**2 + native.noise**2) ** 0.5
    mean_allowed = native.mean * (1 + mean_slack) + 1e-6
    worse = []
    if getattr(kernel, which) > largest_allowed:
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
        floor = max(FLOOR[dtype], subject.floor * exact.pow(2).mean().sqrt().item())
        ours, theirs = errors(actual, exact, floor), errors(native, exact, floor)
        largest = theirs.largest * (1 + LARGEST_SHARE) + LARGEST_SLACK[dtype]
        _judge(what, ours, theirs, ("largest", largest), MEAN_SLACK)
        found.append((ours, theirs))
    return max(found, key=lambda pair: pair[0].largest)


@functools.lru_cache(maxsize=1)
def _exact_chain(subject: Subject, device: torch.device | str) -> Tensor:
    return subject.chain(OPS[subject.op].native, torch.float64, device)


def check_chain(
    subject: Subject,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    run: Run | None = None,
) -> tuple[Errors, Errors]:
    """The same after 72 applications, each added to what it was applied to, as in a deep model."""
    native_run = OPS[subject.op].native
    actual = subject.chain(run or OPS[subject.op].overload, dtype, device)
    native = subject.chain(native_run, dtype, device)
    exact = _exact_chain(subject, device)
    floor = exact.pow(2).mean().sqrt().item()
    ours, theirs = errors(actual, exact, floor, dtype), errors(native, exact, floor, dtype)
    _judge(
        f"{subject} {dtype} after {CHAIN_LENGTH}",
        ours,
        theirs,
        ("row_largest", theirs.row_largest * (1 + CHAIN_LARGEST_SLACK)),
        CHAIN_MEAN_SLACK,
    )
    return ours, theirs


def main() -> None:
    """Print the errors of every operator: ``python -m vllm_ops.shared.testing.accuracy``."""
    found = backends.choose()
    print(f"{found.name} {found.version}: {found.reason}; errors against fp64, in ulps\n")
    head = ["op", "dtype", "largest", "native", "mean", "native", "signed", "native"]
    body = []
    for subject in SUBJECTS:
        if subject.op not in found.ops:
            continue
        for dtype in FLOOR:
            ours, theirs = check_accuracy(subject, "normal", dtype)
            figures = [
                f"{figure:.3f}"
                for pair in zip(
                    (ours.largest, ours.mean, ours.bias),
                    (theirs.largest, theirs.mean, theirs.bias),
                    strict=True,
                )
                for figure in pair
            ]
            body.append([str(subject), str(dtype).removeprefix("torch."), *figures])
    print(_table.render(head, body, 100))


if __name__ == "__main__":
    main()
