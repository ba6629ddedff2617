# SPDX-License-Identifier: Apache-2.0
"""Model classes other than Llama: what is swapped, and that the logits agree."""

import copy
from collections import Counter

import pytest
import torch
from helpers.models import SMALL, close, logits
from vllm_ops.shared.integrations.transformers import patch_model, unpatch_model

# Architecture: how many layers of each operator are swapped in a model of two blocks. Rotary counts
# the attention layers and the module that makes the table.
FULL = {"rms_norm": 5, "silu_and_mul": 2, "rotary_embedding": 3}
ARCHITECTURES = {
    "llama": FULL,
    "mistral": FULL,
    "ministral": FULL,
    "ministral3": FULL,  # scales queries by their position
    "smollm3": FULL,
    "qwen2": FULL,
    "qwen3": FULL | {"rms_norm": 9},
    "granite": FULL,
    "helium": FULL,
    "olmo2": FULL | {"rms_norm": 9},
    "exaone4": FULL | {"rms_norm": 9},
    "phi3": FULL,  # one projection for gate and up, and for query, key and value
    "glm": FULL,  # interleaved pairs, half of each head
    "ernie4_5": FULL,  # interleaved pairs
    "gemma": {"rms_norm": 5, "gelu_and_mul": 2, "rotary_embedding": 3},  # weight + 1
    "gemma2": {"rms_norm": 9, "gelu_and_mul": 2, "rotary_embedding": 3},
    "gemma3_text": {"rms_norm": 13, "gelu_and_mul": 2, "rotary_embedding": 3},  # two tables
    "gpt_oss": {"rms_norm": 5, "rotary_embedding": 3},  # cosines of half the width
    "cohere": {"silu_and_mul": 2, "rotary_embedding": 3},  # its norm subtracts the mean
    "stablelm": {"silu_and_mul": 2, "rotary_embedding": 3},  # turns a quarter of each head
    "gpt_neox": {"rotary_embedding": 3},
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architecture(build, ids, architecture):
    model = build(architecture)
    before = logits(model, ids)
    report = patch_model(model)
    assert Counter(row.op for row in report.swapped) == ARCHITECTURES[architecture]
    close(logits(model, ids), before)
    unpatch_model(model)
    assert torch.equal(logits(model, ids), before)


@pytest.mark.parametrize("architecture", ["llama", "gemma", "glm", "phi3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(build, architecture, dtype):
    """Fused is at least as near to fp32 arithmetic as the model's own code.

    Both round some hundred times, so chance decides over some per cent of the error: hence 1.1.
    """
    ids = torch.randint(3, 128, (4, 32), generator=torch.Generator().manual_seed(2))
    model = build(architecture, dtype)
    exact = logits(copy.deepcopy(model).float(), ids)
    own = (logits(model, ids).float() - exact).norm()
    patch_model(model)
    fused = (logits(model, ids).float() - exact).norm()
    assert fused <= 1.1 * own


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "dynamic", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        {
            "rope_type": "longrope",
            "factor": 4.0,
            "short_factor": [1.0 + 0.1 * i for i in range(8)],
            "long_factor": [1.0 + i for i in range(8)],
            "original_max_position_embeddings": 32,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_rope_types(build, rope):
    """Also where the frequencies change with the length, and beyond the longest of the training."""
    config = {"rope_parameters": {"rope_theta": 10000.0, **rope}}
    model = build(**config)
    short, long = (
        torch.randint(3, 128, (1, length), generator=torch.Generator().manual_seed(length))
        for length in (20, 200)
    )
    expected = [logits(model, x) for x in (short, long, short)]
    report = patch_model(build(**config))
    assert not report.left
    patch_model(model)
    for x, want in zip((short, long, short), expected, strict=True):
        close(logits(model, x), want)


def test_rotary_of_another_kind_is_left_alone(build, ids):
    """NanoChat turns the other way round; its norms are swapped all the same."""
    model = build("nanochat")
    before = logits(model, ids)
    report = patch_model(model)
    assert {row.op for row in report.swapped} == {"rms_norm"}
    reasons = {row.reason for row in report.left if row.op == "rotary_embedding"}
    assert len(reasons) == 1
    assert "apply_rotary_pos_emb computes something else" in reasons.pop()
    close(logits(model, ids), before)


def test_three_rows_of_positions(ids):
    """Multimodal positions: the model mixes its three rows before the table is made."""
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(0)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    config = AutoConfig.for_model("qwen2_5_vl_text", **SMALL, rope_parameters=rope)
    model = AutoModel.from_config(config, dtype=torch.float32).eval()
    positions = torch.randint(0, 100, (3, *ids.shape), generator=torch.Generator().manual_seed(3))

    def hidden():
        with torch.no_grad():
            return model(ids, position_ids=positions).last_hidden_state

    before = hidden()
    report = patch_model(model)
    assert not report.left
    close(hidden(), before)
