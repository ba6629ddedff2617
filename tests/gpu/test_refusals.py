# SPDX-License-Identifier: Apache-2.0
"""What the GPU packages' binding refuses, in the words of everybody else. Compiled for the
emulator, it is the CPU's."""

from __future__ import annotations

import pytest
import torch
from helpers.refusals import BAD, GOOD, sentence_of
from vllm_ops.shared import functional, gpu_package
from vllm_ops.shared.ops import OPS

POSITIONS = torch.arange(4)
TABLE = torch.randn(16, 8)


@pytest.mark.parametrize("op", sorted(gpu_package.OPS))
def test_one_sentence(op, configure):
    for name, wrong, sentence in BAD:
        if name == op:
            arguments = tuple((GOOD[op] | wrong).values())
            got = sentence_of(OPS[op].overload, (RuntimeError,), arguments)
            assert got == f"{op}: {sentence}"


def refused(op, sentence, *arguments):
    assert sentence_of(OPS[op].overload, (RuntimeError,), arguments) == f"{op}: {sentence}"


def test_memory_that_overlaps_is_refused(configure):
    tail = "which is written in place"
    x, residual = torch.randn(4, 8), torch.randn(4, 8)
    refused("rms_norm_", f"weight must not overlap x, {tail}", x, x[1], 1e-6)
    refused("fused_add_rms_norm_", f"weight must not overlap residual, {tail}", x, residual,
            residual[0], 1e-6)  # fmt: skip
    itself = torch.zeros(20).as_strided((4, 8), (4, 1))
    refused("rms_norm_", "x must not overlap itself, as it is written in place, got shape [4, 8] "
            "and strides [4, 1]", itself, None, 1e-6)  # fmt: skip
    query = torch.randn(4, 16)
    refused("rotary_embedding_", f"key must not overlap query, {tail}", POSITIONS, query,
            query[:, 8:], 8, TABLE)  # fmt: skip
    refused("rotary_embedding_", f"cos_sin_cache must not overlap query, {tail}", POSITIONS,
            TABLE[:4], None, 8, TABLE)  # fmt: skip


def test_query_and_key_of_one_projection_are_turned(configure):
    fused = torch.randn(4, 40)
    query, key, value = fused.split([16, 16, 8], -1)
    want = OPS["rotary_embedding"].overload(POSITIONS, query, key, 8, TABLE)
    kept = value.clone()
    OPS["rotary_embedding_"].overload(POSITIONS, query, key, 8, TABLE)
    assert torch.equal(query, want[0])
    assert torch.equal(key, want[1])
    assert torch.equal(value, kept)


def test_float64_is_refused_as_well(configure):
    """It runs the reference, whose message the binding cannot pass on; the functions find it."""
    x = torch.randn(4, 8, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="rms_norm_"):
        OPS["rms_norm_"].overload(x, x[0], 1e-6)
    with pytest.raises(ValueError, match="rms_norm_: weight must not overlap x, which is written"):
        functional.rms_norm_(x, x[0], 1e-6)


@pytest.mark.parametrize("shift", [0, 1])
def test_x_and_residual_in_one_memory(shift, configure):
    """As if the result were computed first and then written, x before residual."""
    memory = torch.randn(5, 8)
    x, residual = memory[:4], memory[shift : shift + 4]
    want = OPS["fused_add_rms_norm"].overload(x, residual, None, 1e-6)
    OPS["fused_add_rms_norm_"].overload(x, residual, None, 1e-6)
    assert torch.equal(residual, want[1])
    assert torch.equal(x[:shift], want[0][:shift])
