# SPDX-License-Identifier: Apache-2.0
"""Small random models of Hugging Face classes, and the kernels that they are to run on."""

import os

import pytest
import torch
from vllm_ops.shared import backends

os.environ["HF_HUB_OFFLINE"] = "1"
pytest.importorskip("transformers", reason="transformers is not installed")

SMALL = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.fixture(autouse=True, scope="session")
def kernels():
    """These tests compare kernels with a model's own code, so they need kernels."""
    found = backends.choose()
    if not found.usable:
        pytest.skip(f"no kernels: {found.reason}")


@pytest.fixture
def build():
    """``build("llama", torch.float32, **config)``: a small model with random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def build(architecture="llama", dtype=torch.float32, **config):
        torch.manual_seed(0)
        made = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(architecture, **{**SMALL, **config}), dtype=dtype
        ).eval()
        with torch.no_grad():
            for parameter in made.parameters():
                # As initialised, norms have weight 1 and attention is nearly uniform: too little
                # would show.
                noise = torch.randn_like(parameter) * 0.2
                parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
        return made

    return build


@pytest.fixture
def ids():
    return torch.randint(3, 128, (2, 9), generator=torch.Generator().manual_seed(1))


def logits(model, *args, **kwargs):
    with torch.no_grad():
        return model(*args, **kwargs).logits


def close(actual, expected, dtype=torch.float32):
    """Agreement of logits: the kernels may differ from a model in the last bits of each layer."""
    scale = expected.float().abs().max().item()
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    torch.testing.assert_close(actual.float(), expected.float(), rtol=0, atol=tolerance * scale)
