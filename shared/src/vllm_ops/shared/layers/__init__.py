# SPDX-License-Identifier: Apache-2.0
"""The operator layers."""

from .activation import FastGELU, GeluAndMul, NewGELU, QuickGELU, SiluAndMul
from .layernorm import RMSNorm
from .rotary import RotaryEmbedding, get_rope

__all__ = [
    "FastGELU",
    "GeluAndMul",
    "NewGELU",
    "QuickGELU",
    "RMSNorm",
    "RotaryEmbedding",
    "SiluAndMul",
    "get_rope",
]
