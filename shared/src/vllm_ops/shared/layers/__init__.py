# SPDX-License-Identifier: Apache-2.0
"""The operator layers."""

from .activation import FastGELU, GeluAndMul, NewGELU, QuickGELU, SiluAndMul
from .apply_rotary import ApplyRotaryEmb, QKNormRope
from .dual_chunk import DualChunkRotaryEmbedding
from .layernorm import RMSNorm
from .mrope import MRotaryEmbedding
from .rope_factory import clear_rope_cache, get_rope
from .rotary import RotaryEmbedding

__all__ = [
    "ApplyRotaryEmb",
    "DualChunkRotaryEmbedding",
    "FastGELU",
    "GeluAndMul",
    "MRotaryEmbedding",
    "NewGELU",
    "QKNormRope",
    "QuickGELU",
    "RMSNorm",
    "RotaryEmbedding",
    "SiluAndMul",
    "clear_rope_cache",
    "get_rope",
]
