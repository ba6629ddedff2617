# SPDX-License-Identifier: Apache-2.0
"""cos and sin as the rotary modules of `transformers` compute them."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from rope_models import RopeModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def _module(model: RopeModel) -> torch.nn.Module:
    arguments: dict[str, Any] = {
        "hidden_size": model.head_dim * 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": model.head_dim,
        "max_position_embeddings": model.max_position,
        "rope_parameters": copy.deepcopy(model.parameters) or {},
    }
    if arguments["rope_parameters"].get("type") == "mrope":
        arguments["rope_parameters"]["type"] = "default"
    if model.base is not None:
        arguments["rope_parameters"]["rope_theta"] = model.base
    if model.partial is not None:
        arguments["rope_parameters"]["partial_rotary_factor"] = model.partial
    if model.original is not None:
        arguments["original_max_position_embeddings"] = model.original
    if model.oracle == "glm":
        from transformers import GlmConfig
        from transformers.models.glm.modeling_glm import GlmRotaryEmbedding

        return GlmRotaryEmbedding(GlmConfig(**arguments))
    if model.oracle == "hunyuan":
        from transformers import HunYuanDenseV1Config
        from transformers.models.hunyuan_v1_dense import modeling_hunyuan_v1_dense

        return modeling_hunyuan_v1_dense.HunYuanDenseV1RotaryEmbedding(
            HunYuanDenseV1Config(**arguments)
        )
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return LlamaRotaryEmbedding(LlamaConfig(**arguments))


def cos_sin(model: RopeModel, positions: list[int]) -> tuple[torch.Tensor, torch.Tensor, float]:
    """cos and sin `[len(positions), pairs]` for one sequence that has these positions, in fp32,
    and the attention factor.

    The types that depend on the length of the sequence take it from the greatest position. For
    `dynamic` it goes to the initialiser as an integer, whose base is then exact to fp64; the module
    itself passes a tensor and so rounds the grown base to fp32 on the way, which shows as 6e-5 at
    position 8192 for lengths that are not a round multiple.
    """
    module = _module(model)
    if module.rope_type == "dynamic":
        length = max(positions) + 1
        initialiser = ROPE_INIT_FUNCTIONS["dynamic"]
        module.inv_freq, module.attention_scaling = initialiser(module.config, seq_len=length)
        module.max_seq_len_cached = length
    cos, sin = module(torch.empty(0), torch.tensor([positions]))
    pairs = cos.shape[-1] // 2
    scaling = module.attention_scaling
    assert isinstance(scaling, float)
    assert math.isfinite(scaling)
    return cos[0, :, :pairs], sin[0, :, :pairs], scaling
