# SPDX-License-Identifier: Apache-2.0
"""Rotary settings of published models, as their configuration files state them.

A name that ends in `-like` or `-with-...` has the keys of such a file and other numbers, to reach a
branch that no published file reaches or to keep the table small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RopeModel:
    """One model's rotary configuration.

    Attributes:
        name: the model.
        head_dim: elements of a head (for DeepSeek, of its rotary part).
        max_position: `max_position_embeddings`.
        parameters: `rope_scaling` or `rope_parameters`, literally.
        base: `rope_theta` where it stands beside the dictionary.
        partial: `partial_rotary_factor` where it stands beside the dictionary.
        original: the configuration's own `original_max_position_embeddings`.
        length: the longest sequence that the configuration claims.
        oracle: whose rotary module of `transformers` to compare with; see `rope_oracle.py`.
    """

    name: str
    head_dim: int
    max_position: int
    parameters: dict[str, Any] | None
    length: int
    base: float | None = None
    partial: float | None = None
    original: int | None = None
    oracle: str = "llama"


# The lists of Phi-3.5-mini-instruct (128k), whose head has 48 pairs.
PHI35_SHORT = [
    1.0, 1.0199999809265137, 1.0299999713897705, 1.0299999713897705, 1.0499999523162842,
    1.0499999523162842, 1.0499999523162842, 1.0499999523162842, 1.0499999523162842,
    1.0699999332427979, 1.0999999046325684, 1.1099998950958252, 1.1599998474121094,
    1.1599998474121094, 1.1699998378753662, 1.2899998426437378, 1.339999794960022,
    1.679999828338623, 1.7899998426437378, 1.8199998140335083, 1.8499997854232788,
    1.8799997568130493, 1.9099997282028198, 1.9399996995925903, 1.9899996519088745,
    2.0199997425079346, 2.0199997425079346, 2.0199997425079346, 2.0199997425079346,
    2.0199997425079346, 2.0199997425079346, 2.0299997329711914, 2.0299997329711914,
    2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914,
    2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0799996852874756,
    2.0899996757507324, 2.189999580383301, 2.2199995517730713, 2.5899994373321533,
    2.729999542236328, 2.749999523162842, 2.8399994373321533,
]  # fmt: skip
PHI35_LONG = [
    1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601,
    1.5899999141693115, 1.600000023841858, 1.6200000047683716, 2.620000123977661,
    3.2300000190734863, 3.2300000190734863, 4.789999961853027, 7.400000095367432,
    7.700000286102295, 9.09000015258789, 12.199999809265137, 17.670000076293945,
    24.46000099182129, 28.57000160217285, 30.420001983642578, 30.840002059936523,
    32.590003967285156, 32.93000411987305, 42.320003509521484, 44.96000289916992,
    50.340003967285156, 50.45000457763672, 57.55000305175781, 57.93000411987305,
    58.21000289916992, 60.1400032043457, 62.61000442504883, 62.62000274658203, 62.71000289916992,
    63.1400032043457, 63.1400032043457, 63.77000427246094, 63.93000411987305, 63.96000289916992,
    63.970001220703125, 64.02999877929688, 64.06999969482422, 64.08000183105469,
    64.12000274658203, 64.41000366210938, 64.4800033569336, 64.51000213623047, 64.52999877929688,
    64.83999633789062,
]  # fmt: skip

MODELS = [
    RopeModel("llama-2-7b", 128, 4096, None, 4096, base=10000.0),
    RopeModel(
        "llama-3.1-8b",
        128,
        131072,
        {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        131072,
        base=500000.0,
    ),
    RopeModel(
        "llama-3.2-1b",
        64,
        131072,
        {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
            "rope_theta": 500000.0,
        },
        131072,
    ),
    RopeModel(
        "llama-4-scout-like",
        128,
        262144,
        {
            "factor": 16.0,
            "high_freq_factor": 1.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        262144,
        base=500000.0,
    ),
    RopeModel(
        "vicuna-7b-v1.5-16k", 128, 4096, {"factor": 4.0, "type": "linear"}, 16384, base=10000.0
    ),
    RopeModel(
        "deepseek-coder-6.7b", 128, 16384, {"factor": 4.0, "type": "linear"}, 65536, base=100000
    ),
    RopeModel("internlm2-like", 128, 8192, {"factor": 2.5, "type": "dynamic"}, 20480, base=1000000),
    RopeModel(
        "qwen2.5-7b-yarn",
        128,
        32768,
        {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
        131072,
        base=1000000.0,
    ),
    RopeModel(
        "qwen3-8b-yarn",
        128,
        40960,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        131072,
        base=1000000,
    ),
    RopeModel("qwen2.5-7b-1m", 128, 1010000, None, 1010000, base=10000000.0),
    RopeModel(
        "deepseek-v2",
        64,
        163840,
        {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096,
            "type": "yarn",
        },
        163840,
        base=10000,
    ),
    RopeModel(
        "deepseek-with-two-mscales",
        64,
        163840,
        {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 1.0,
            "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096,
            "type": "yarn",
        },
        163840,
        base=10000,
    ),
    RopeModel(
        "deepseek-v3",
        64,
        163840,
        {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096,
            "type": "yarn",
        },
        163840,
        base=10000,
    ),
    RopeModel(
        "deepseek-v4-like",
        64,
        65536,
        {
            "rope_type": "yarn",
            "rope_theta": 160000.0,
            "factor": 16,
            "original_max_position_embeddings": 65536,
            "beta_fast": 32,
            "beta_slow": 1,
            "attention_factor": 1.0,
        },
        1048576,
    ),
    RopeModel(
        "gpt-oss-20b",
        64,
        131072,
        {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        131072,
        base=150000,
    ),
    RopeModel(
        "ministral-3",
        128,
        262144,
        {
            "type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 16384,
            "max_position_embeddings": 262144,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale_all_dim": 1.0,
            "mscale": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
        262144,
    ),
    RopeModel(
        "phi-3.5-mini",
        96,
        131072,
        {"short_factor": PHI35_SHORT, "long_factor": PHI35_LONG, "type": "longrope"},
        131072,
        base=10000.0,
        original=4096,
    ),
    RopeModel(
        "phi-4-mini-like",
        128,
        131072,
        {
            "short_factor": PHI35_SHORT,
            "long_factor": PHI35_LONG,
            "type": "longrope",
        },
        131072,
        base=10000.0,
        partial=0.75,
        original=4096,
    ),
    RopeModel(
        "glm-4-9b",
        128,
        131072,
        {"rope_type": "default"},
        131072,
        base=10000.0,
        partial=0.5,
        oracle="glm",
    ),
    RopeModel("phi-2", 80, 2048, None, 2048, base=10000.0, partial=0.4, oracle="glm"),
    RopeModel(
        "qwen2-vl-7b",
        128,
        32768,
        {"type": "mrope", "mrope_section": [16, 24, 24]},
        32768,
        base=1000000.0,
    ),
    RopeModel(
        "qwen3-vl-8b",
        128,
        262144,
        {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        262144,
        base=5000000,
    ),
    RopeModel(
        "qwen3.5-partial",
        256,
        262144,
        {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
        },
        262144,
        oracle="glm",
    ),
    RopeModel(
        "gemma-4-full-attention",
        512,
        131072,
        {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
        131072,
    ),
    RopeModel(
        "proportional-with-factor",
        128,
        8192,
        {
            "rope_type": "proportional",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.3,
            "factor": 4.0,
        },
        32768,
    ),
    RopeModel(
        "hunyuan-7b-alpha",
        128,
        262144,
        {
            "alpha": 1000.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "type": "dynamic",
        },
        262144,
        base=10000.0,
        oracle="hunyuan",
    ),
]
