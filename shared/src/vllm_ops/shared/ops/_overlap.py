# SPDX-License-Identifier: Apache-2.0
"""Whether strided tensors share memory, exactly: the same answers as csrc/binding/overlap.h.

An element's place is a sum of index * stride, so sharing is a linear equation in bounded integers.
The search goes from the largest stride to the smallest and drops what the smaller ones can't make
up for; strides that nest, as those of views do, leave it two or three branches a level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

MAX_STEPS = 20000
"""Strides that a person would not write could take forever; then the answer is yes."""

Term = tuple[int, int]
"""A step and the most times that it is taken."""


def _reaches(terms: Sequence[Term], low: int, high: int) -> bool:
    """Whether a sum of ``step * v`` with ``0 <= v <= most`` lies within ``[low, high]``."""
    merged: Counter[int] = Counter()
    for step, most in terms:
        if step and most > 0:
            merged[step] += most
    ordered = sorted(merged.items(), reverse=True)
    rest = [0]
    for step, most in reversed(ordered):
        rest.append(rest[-1] + step * most)
    rest.reverse()
    steps = 0

    def reach(place: int, low: int, high: int) -> bool:
        nonlocal steps
        if low > rest[place] or high < 0:
            return False
        if place == len(ordered) or low <= 0:
            return True
        steps += 1
        if steps > MAX_STEPS:
            return True
        step, most = ordered[place]
        first = max(0, -((rest[place + 1] - low) // step))
        last = min(high // step, most)
        return any(
            reach(place + 1, low - v * step, high - v * step) for v in range(first, last + 1)
        )

    return reach(0, low, high)


def overlaps_itself(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements of a tensor with this layout share memory."""
    if 0 in sizes:
        return False
    terms = sorted(
        (stride, size - 1) for size, stride in zip(sizes, strides, strict=True) if size > 1
    )
    below = 0
    for lead, (step, most) in enumerate(terms):
        # Two indices that lead to one place differ first, seen from the largest stride, in one
        # dimension, by 1 or more; the smaller strides make up for it.
        others = [(smaller, 2 * times) for smaller, times in terms[:lead]]
        wanted = below - step
        if step == 0 or (wanted >= 0 and _reaches([(step, most - 1), *others], wanted, wanted)):
            return True
        below += step * most
    return False


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether an element of ``a`` shares memory with one of ``b``; no for tensors that lie
    nowhere, as those of the meta device.

    Raises:
        RuntimeError: one of them has no address.
    """
    if a.numel() == 0 or b.numel() == 0:
        return False
    a_place, b_place = a.data_ptr(), b.data_ptr()
    if not a_place or not b_place:
        return False
    a_size, b_size = a.element_size(), b.element_size()
    distance = a_place - b_place
    a_terms = [(a_size * step, n - 1) for step, n in zip(a.stride(), a.shape, strict=True)]
    b_terms = [(b_size * step, n - 1) for step, n in zip(b.stride(), b.shape, strict=True)]
    a_last = sum(step * most for step, most in a_terms)
    b_last = sum(step * most for step, most in b_terms)
    if distance >= b_last + b_size or -distance >= a_last + a_size:
        return False
    # b's indices count from its end, so that all steps are positive.
    offset = distance - b_last
    return _reaches([*a_terms, *b_terms], 1 - a_size - offset, b_size - 1 - offset)
