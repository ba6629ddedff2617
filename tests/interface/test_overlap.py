# SPDX-License-Identifier: Apache-2.0
"""In-place operators and memory: what shares it is refused, what only lies close is written."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
import torch
from helpers.kernels import need_kernel
from helpers.refusals import reference
from vllm_ops.shared import functional
from vllm_ops.shared.ops import OPS
from vllm_ops.shared.ops._overlap import overlap, overlaps_itself

from .test_refusals import same_everywhere

POSITIONS = torch.arange(4)
TABLE = torch.randn(16, 8)
WEIGHT = torch.ones(8)


def places(sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    return [
        sum(i * s for i, s in zip(index, strides, strict=True))
        for index in product(*map(range, sizes))
    ]


def layouts(count: int, seed: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Small ones whose strides nest, cross or vanish."""
    draw = random.Random(seed)  # noqa: S311
    found = []
    for _ in range(count):
        dim = draw.randint(1, 4)
        sizes = tuple(draw.choice((0, 1, 2, 3, 4, 5)) if draw.random() < 0.9 else 1
                      for _ in range(dim))  # fmt: skip
        strides = tuple(draw.choice((0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 20)) for _ in range(dim))
        found.append((sizes, strides))
    return found


def test_itself_is_what_counting_finds() -> None:
    seen = set()
    for sizes, strides in layouts(4000, 1):
        found = places(sizes, strides)
        expected = len(set(found)) < len(found)
        assert overlaps_itself(sizes, strides) == expected, (sizes, strides)
        seen.add(expected)
    assert seen == {True, False}


def test_each_other_is_what_counting_finds() -> None:
    memory = torch.zeros(400)
    draw = random.Random(2)  # noqa: S311
    seen = {True: 0, False: 0}
    for one, other in zip(layouts(4000, 3), layouts(4000, 4), strict=True):
        starts = draw.randint(0, 40), draw.randint(0, 40)
        a, b = (
            memory.as_strided(*layout, start)
            for layout, start in zip((one, other), starts, strict=True)
        )
        met = {starts[0] + p for p in places(*one)} & {starts[1] + p for p in places(*other)}
        assert overlap(a, b) == overlap(b, a) == bool(met), (one, other, starts)
        seen[bool(met)] += 1
    assert min(seen.values()) > 500


@pytest.mark.parametrize("dtypes", [(torch.int16, torch.int64), (torch.int64, torch.int8)])
def test_elements_of_two_sizes(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    memory = torch.zeros(64, dtype=torch.int64)
    draw = random.Random(5)  # noqa: S311
    for one, other in zip(layouts(1500, 6), layouts(1500, 7), strict=True):
        views, bytes_ = [], []
        for layout, dtype in zip((one, other), dtypes, strict=True):
            whole = memory.view(dtype)
            last = max(places(*layout), default=0)
            if last >= whole.numel():
                break
            start = draw.randint(0, min(20, whole.numel() - 1 - last))
            views.append(whole.as_strided(*layout, start))
            size = dtype.itemsize
            bytes_.append(
                {(start + p) * size + byte for p in places(*layout) for byte in range(size)}
            )
        if len(views) == 2:
            assert overlap(*views) == bool(bytes_[0] & bytes_[1]), (one, other)


def refusal(x: torch.Tensor, weight: torch.Tensor | None) -> str | None:
    try:
        OPS["rms_norm_"].overload(x, weight, 1e-6)
    except RuntimeError as error:
        return str(error)
    return None


@pytest.mark.parametrize("seed", [11, 12])
def test_the_kernel_counts_alike(seed: int) -> None:
    """The C++ copy, through an operator that refuses for no other reason."""
    need_kernel("fused_add_rms_norm_")
    seen = {True: 0, False: 0}
    for sizes, strides in layouts(1500, seed):
        x = torch.zeros(200).as_strided(sizes, strides)
        expected = overlaps_itself(sizes, strides)
        said = refusal(x, None)
        assert (said is not None) == expected, (sizes, strides)
        assert said is None or "must not overlap itself" in said
        seen[expected] += 1
    assert min(seen.values()) > 200
    memory = torch.zeros(400)
    draw = random.Random(seed)  # noqa: S311
    seen = {True: 0, False: 0}
    for sizes, strides in layouts(3000, seed + 10):
        if overlaps_itself(sizes, strides) or sizes[-1] == 0:
            continue
        x = memory.as_strided(sizes, strides, draw.randint(0, 100))
        weight = memory[draw.randint(0, 100) :][:: draw.randint(1, 20)][: sizes[-1]]
        expected = overlap(weight, x)
        said = "rms_norm_: weight must not overlap x, which is written in place"
        assert refusal(x, weight) == (said if expected else None), (x.stride(), weight.stride())
        seen[expected] += 1
    assert min(seen.values()) > 100


def strided(*layout: Any) -> torch.Tensor:
    return torch.zeros(256).as_strided(*layout)


SELF = [
    (torch.zeros(1, 8).expand(4, 8), "got shape [4, 8] and strides [0, 1]"),
    (strided((4, 8), (4, 1)), "got shape [4, 8] and strides [4, 1]"),
    (strided((4, 8), (1, 1)), "got shape [4, 8] and strides [1, 1]"),
    (strided((4, 8), (3, 2)), "got shape [4, 8] and strides [3, 2]"),
    (strided((4, 8), (16, 0)), "got shape [4, 8] and strides [16, 0]"),
]


@pytest.mark.parametrize(("value", "got"), SELF, ids=[got for _, got in SELF])
def test_a_tensor_that_overlaps_itself(value: torch.Tensor, got: str) -> None:
    need_kernel("rms_norm_")
    tail = f"must not overlap itself, as it is written in place, {got}"
    apart = torch.zeros(4, 8)
    same_everywhere("rms_norm_", (value, WEIGHT, 1e-6), f"x {tail}")
    same_everywhere("fused_add_rms_norm_", (value, apart, WEIGHT, 1e-6), f"x {tail}")
    same_everywhere("fused_add_rms_norm_", (apart, value, WEIGHT, 1e-6), f"residual {tail}")
    for query, key, name in (
        (value, apart, "query"),
        (apart, value, "key"),
        (value, None, "query"),
    ):
        same_everywhere("rotary_embedding_", (POSITIONS, query, key, 8, TABLE), f"{name} {tail}")


def test_arguments_that_overlap() -> None:
    need_kernel("rms_norm_")
    x, residual = torch.zeros(4, 8), torch.zeros(4, 8)
    tail = "which is written in place"
    same_everywhere("rms_norm_", (x, x[1], 1e-6), f"weight must not overlap x, {tail}")
    same_everywhere(
        "rms_norm_",
        (x, x.view(torch.bfloat16)[2, 4:12], 1e-6),
        f"weight must not overlap x, {tail}",
    )
    for name, weight in (("x", x[3]), ("residual", residual[0])):
        same_everywhere(
            "fused_add_rms_norm_",
            (x, residual, weight, 1e-6),
            f"weight must not overlap {name}, {tail}",
        )
    query = torch.zeros(4, 16)
    for key in (query, query[:, 8:], query[:, 4:12], query.view(4, 2, 8)[:, 1:]):
        same_everywhere(
            "rotary_embedding_",
            (POSITIONS, query, key, 8, TABLE),
            f"key must not overlap query, {tail}",
        )
    wide = torch.zeros(64, 8)
    for query, key, of in ((wide[5:9], None, "query"), (torch.zeros(4, 8), wide[5:9], "key")):
        same_everywhere(
            "rotary_embedding_",
            (POSITIONS, query, key, 8, wide[:16]),
            f"cos_sin_cache must not overlap {of}, {tail}",
        )
    memory = torch.zeros(64, dtype=torch.int64)
    same_everywhere(
        "rotary_embedding_",
        (memory[3:7], memory.view(torch.float32)[:32].view(4, 8), None, 8, TABLE),
        f"positions must not overlap query, {tail}",
    )


def disjoint() -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """Query and key of four tokens whose memory lies interleaved."""
    fused = torch.randn(4, 2 * 16 + 8)
    pairs = torch.randn(4, 3, 2, 8)
    columns = torch.randn(4, 32)
    transposed = torch.randn(5, 4, 8)
    return [
        ("split", *fused.split([16, 16, 8], -1)[:2]),
        ("split heads", fused[:, :16].view(4, 2, 8), fused[:, 16:32].view(4, 2, 8)),
        ("head by head", pairs[:, :, 0], pairs[:, :, 1]),
        ("columns in turn", columns[:, ::2], columns[:, 1::2]),
        ("rows in turn", torch.randn(8, 16)[::2], torch.randn(8, 16)[1::2]),
        ("rows in turn of one", (both := torch.randn(8, 16))[::2], both[1::2]),
        ("heads outermost", transposed[:3].transpose(0, 1), transposed[3:].transpose(0, 1)),
    ]


@pytest.mark.parametrize(("query", "key"), [v[1:] for v in disjoint()],
                         ids=[v[0] for v in disjoint()])  # fmt: skip
def test_disjoint_views_are_written(query: torch.Tensor, key: torch.Tensor) -> None:
    want = functional.rotary_embedding(POSITIONS, query, key, 8, TABLE)
    for call in (functional.rotary_embedding_, reference("rotary_embedding_")):
        ours = query.clone(), key.clone()
        base = query._base if query._base is not None else query
        kept = base.clone()
        call(POSITIONS, query, key, 8, TABLE)
        torch.testing.assert_close(query, want[0])
        torch.testing.assert_close(key, want[1])
        query.copy_(ours[0])
        key.copy_(ours[1])
        assert torch.equal(base, kept), "nothing else was written"


def test_a_weight_beside_what_is_written() -> None:
    memory = torch.randn(5, 9)
    x, weight = memory[:4, :8], memory[4, 1:]
    want = functional.rms_norm(x, weight, 1e-6)
    for call in (functional.rms_norm_, reference("rms_norm_")):
        memory[:4, :8], kept = x.clone(), x.clone()
        call(x, weight, 1e-6)
        torch.testing.assert_close(x, want)
        x.copy_(kept)
