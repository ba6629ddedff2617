# SPDX-License-Identifier: Apache-2.0
"""What a person gets wrong, and what the error then says."""

import re

import pytest
import torch
from vllm_ops.shared import GemmaRMSNorm, LayerNorm, RMSNorm, RotaryEmbedding, get_rope, strict
from vllm_ops.shared import functional as F

TABLE = torch.randn(16, 8)
POSITIONS = torch.arange(4)
QUERY = torch.randn(4, 16)


@pytest.mark.parametrize("layer", [RMSNorm, GemmaRMSNorm, LayerNorm])
def test_a_wrong_hidden_size_is_blamed_on_the_input(layer):
    message = "x must have 8 elements in the last dimension, got 7"
    with pytest.raises(ValueError, match=message):
        layer(8)(torch.randn(4, 7))


@pytest.mark.parametrize("value", ["gptj", None, 2])
def test_a_rotary_style_is_a_bool(value):
    message = re.escape(f"is_neox_style must be True or False, got {value!r}")
    with pytest.raises(TypeError, match=message):
        RotaryEmbedding(8, 8, 16, is_neox_style=value)
    with pytest.raises(TypeError, match=message):
        get_rope(8, 8, 16, is_neox_style=value)


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_mkldnn], ids=str)
def test_a_layout_that_is_not_dense_is_refused_by_name(convert):
    x, weight = torch.randn(4, 8), torch.ones(8)
    with pytest.raises(TypeError, match=r"rms_norm: x must be a dense tensor .*, got "):
        F.rms_norm(convert(x), weight, 1e-6)
    with pytest.raises(TypeError, match=r"rms_norm: weight must be a dense tensor .*, got "):
        F.rms_norm(x, convert(weight), 1e-6)


@pytest.mark.parametrize(
    ("shift", "message"), [(-3, "must not be negative"), (50, "must be below 16")]
)
def test_positions_are_checked_under_function_transforms(shift, message):
    def turn(query):
        return F.rotary_embedding(POSITIONS + shift, query, None, 8, TABLE)[0]

    with pytest.raises(ValueError, match=message):
        torch.func.jvp(turn, (QUERY,), (QUERY,))
    with pytest.raises(ValueError, match=message):
        torch.func.grad(lambda query: turn(query).sum())(QUERY)


def test_positions_that_vmap_hides_give_nan():
    def turn(position):
        return F.rotary_embedding(position[None], QUERY[:1], None, 8, TABLE)[0]

    rows = torch.vmap(turn)(torch.tensor([-1, 3, 16]))
    assert rows[0].isnan().all()
    assert rows[2].isnan().all()
    torch.testing.assert_close(rows[1], turn(torch.tensor(3)))


def test_a_misspelt_strict_setting_is_noticed_where_all_is_well(monkeypatch):
    monkeypatch.setenv("VLLM_OPS_STRICT", "maybe")
    with pytest.raises(ValueError, match="VLLM_OPS_STRICT must be 0 or 1, got 'maybe'"):
        RMSNorm(8)


def test_strict_takes_a_bool():
    with (
        pytest.raises(TypeError, match="strict: enabled must be True or False, got 'no'"),
        strict("no"),
    ):
        pass
