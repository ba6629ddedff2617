# SPDX-License-Identifier: Apache-2.0
"""How far a kernel may be from the reference: the numerics contract in numbers.

Half precision is judged in ulps, because the contract fixes where a value is rounded: a kernel that
rounds at the same places differs only where the fp32 value before the rounding differs in its last
bits and straddles a rounding boundary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tolerance:
    """Half precision: at least ``equal`` of the elements bit for bit, the rest within ``ulps``.

    fp32 and fp64: ``torch.testing.assert_close`` with ``rtol`` and ``atol``; ``atol`` is relative
    to the largest magnitude in the expected output, as results near zero come from cancelling
    terms.
    """

    equal: float
    ulps: int
    floor: float = 0.0
    """Half precision: a difference of at most this part of the largest magnitude in the expected
    output is none, for sums whose terms cancel."""


ELEMENTWISE = Tolerance(equal=0.9999, ulps=1)
"""Activations and rotary: no reduction, so only the last fp32 bit of exp, erf or a product
differs."""

CANCELLING = Tolerance(equal=0.999, ulps=1)
"""xIELU, whose two terms cancel near -1: what is left of 0.5 shows the last bits of expm1
magnified. Of four million normal values in fp16, 2.3 in 10,000 differ between two expm1 that are
both within an ulp."""

NORM = Tolerance(equal=0.995, ulps=2)
"""Norms: the order of the sum differs, which can flip the rounding before the weight multiply; the
multiply then shows one flipped ulp as up to two."""

LINEAR = Tolerance(equal=0.99, ulps=1, floor=2.0**-18)
"""Linear: the order of the sum differs, by some fp32 epsilons of the terms, which is more than an
ulp of an element that is small because its terms cancel."""

RTOL = {torch.float32: 4e-6, torch.float64: 1e-12}
"""fp32: some tens of fp32 epsilons, for a polynomial exp or erf against another within 1-2 ulp
each."""

ATOL = {torch.float32: 1e-6, torch.float64: 1e-13}


def ulp_distance(actual: Tensor, expected: Tensor) -> Tensor:
    """How many representable values lie between two fp16 or bf16 tensors, elementwise."""

    def ordered(x: Tensor) -> Tensor:
        bits = x.contiguous().view(torch.int16).int()
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    return (ordered(actual) - ordered(expected)).abs()


def assert_within(actual: Tensor, expected: Tensor, tolerance: Tolerance, what: str = "") -> None:
    """Raise AssertionError unless ``actual`` keeps the contract with ``expected``.

    NaN equals NaN; infinities must agree in place and sign; dtype, shape and device must be equal.
    """
    actual, expected = actual.detach(), expected.detach()
    if actual.dtype not in (torch.bfloat16, torch.float16):
        finite = expected[torch.isfinite(expected)]
        scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
        torch.testing.assert_close(
            actual,
            expected,
            rtol=RTOL[actual.dtype],
            atol=ATOL[actual.dtype] * scale,
            equal_nan=True,
            msg=lambda text: f"{what}\n{text}",
        )
        return
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        raise AssertionError(
            f"{what}: got {actual.dtype} {list(actual.shape)}, "
            f"expected {expected.dtype} {list(expected.shape)}"
        )
    if expected.numel() == 0:
        return
    special = ~torch.isfinite(expected)
    same_special = torch.equal(~torch.isfinite(actual), special) and torch.equal(
        torch.nan_to_num(actual[special].float(), nan=0.5),
        torch.nan_to_num(expected[special].float(), nan=0.5),
    )
    if not same_special:
        raise AssertionError(f"{what}: NaN or infinity in different places")
    distance = ulp_distance(actual, expected).masked_fill(special, 0)
    if tolerance.floor:
        wide = expected.double().masked_fill(special, 0)
        near = (actual.double() - wide).abs() <= tolerance.floor * wide.abs().max()
        distance = distance.masked_fill(near, 0)
    worst, flips = int(distance.max()), int((distance > 0).sum())
    allowed = max(1, int((1 - tolerance.equal) * expected.numel()))
    if worst > tolerance.ulps or flips > allowed:
        raise AssertionError(
            f"{what}: {flips} of {expected.numel()} elements differ ({allowed} may), "
            f"the worst by {worst} ulp ({tolerance.ulps} allowed)"
        )
