# SPDX-License-Identifier: Apache-2.0
"""What the tests of patched models share."""

import torch

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
"""Configuration of a model that runs in milliseconds."""


def logits(model, *args, **kwargs):
    with torch.no_grad():
        return model(*args, **kwargs).logits


def close(actual, expected, dtype=torch.float32):
    """Agreement of logits: the kernels may differ from a model in the last bits of each layer."""
    scale = expected.float().abs().max().item()
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    torch.testing.assert_close(actual.float(), expected.float(), rtol=0, atol=tolerance * scale)
