# SPDX-License-Identifier: Apache-2.0
"""The stand-in refuses what the real functions refuse: otherwise the tests over it show nothing."""

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import RotaryPosEmbeddingMode, apply_rotary_pos_emb
from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

X, WEIGHT = torch.randn(1, 3, 8), torch.ones(8)
HEADS, ANGLE = torch.randn(3, 2, 8), torch.randn(3, 1, 8)
BLOCKWISE = RotaryPosEmbeddingMode.BLOCKWISE


@pytest.mark.parametrize(
    ("x", "weight", "eps"),
    [
        (X[0], WEIGHT, 1e-6),
        (X, WEIGHT.bfloat16(), 1e-6),
        (X.double(), WEIGHT.double(), 1e-6),
        (torch.randn(2, 3, 8).transpose(0, 1), WEIGHT, 1e-6),
        (X, WEIGHT[:4], 1e-6),
        (X[:, :0], WEIGHT, 1e-6),
        (X, WEIGHT, torch.tensor(1e-6)),
    ],
    ids=["rank-2", "mixed", "fp64", "strides", "weight-size", "empty", "eps-tensor"],
)
def test_fused_rms_norm_refuses(x, weight, eps):
    with pytest.raises(RuntimeError, match="FusedRMSNorm"):
        FusedRMSNorm.apply(x, weight, eps)


@pytest.mark.parametrize(
    ("x", "cos", "sin", "rest"),
    [
        (HEADS[0], ANGLE[0], ANGLE[0], (None, 0, "BLOCKWISE")),
        (HEADS, ANGLE, ANGLE, (None, 0, 0)),
        (HEADS, ANGLE[..., :4], ANGLE[..., :4], (None, 0, BLOCKWISE)),
        (HEADS, ANGLE[:, 0], ANGLE[:, 0], (None, 0, BLOCKWISE)),
        (HEADS.bfloat16(), ANGLE, ANGLE, (None, 0, BLOCKWISE)),
        (HEADS[..., ::2], ANGLE[..., :4], ANGLE[..., :4], (None, 0, BLOCKWISE)),
        (HEADS, ANGLE, ANGLE, (torch.arange(3), 0, BLOCKWISE)),
    ],
    ids=["mode-name", "mode-number", "half-width", "rank", "mixed", "strides", "position-ids"],
)
def test_rotary_refuses(x, cos, sin, rest):
    with pytest.raises((RuntimeError, TypeError), match="apply_rotary_pos_emb"):
        apply_rotary_pos_emb(x, cos, sin, *rest)


def test_modes_differ():
    pairwise = RotaryPosEmbeddingMode.PAIRWISE
    blocks = apply_rotary_pos_emb(HEADS, ANGLE, ANGLE, None, 0, BLOCKWISE)
    pairs = apply_rotary_pos_emb(HEADS, ANGLE, ANGLE, None, 0, pairwise)
    assert not torch.equal(blocks, pairs)
