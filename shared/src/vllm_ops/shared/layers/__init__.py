# SPDX-License-Identifier: Apache-2.0
"""The operator layers."""

from .activation import (
    GELU,
    XIELU,
    FastGELU,
    FatreluAndMul,
    GeluAndMul,
    GELUTanh,
    MulAndSilu,
    NewGELU,
    QuickGELU,
    ReLUSquared,
    ScaledActivation,
    SiluAndMul,
    SiluAndMulWithClamp,
    SwigluOAIAndMul,
)
from .activation_names import get_act_and_mul_fn, get_act_fn
from .apply_rotary import ApplyRotaryEmb, QKNormRope
from .dual_chunk import DualChunkRotaryEmbedding
from .layernorm import GemmaRMSNorm, LayerNorm, RMSNorm, RMSNormGated
from .linear import Linear
from .linear_int8 import LinearInt8
from .mrope import MRotaryEmbedding
from .rope_factory import clear_rope_cache, get_rope
from .rotary import RotaryEmbedding

__all__ = [
    "GELU",
    "XIELU",
    "ApplyRotaryEmb",
    "DualChunkRotaryEmbedding",
    "FastGELU",
    "FatreluAndMul",
    "GELUTanh",
    "GeluAndMul",
    "GemmaRMSNorm",
    "LayerNorm",
    "Linear",
    "LinearInt8",
    "MRotaryEmbedding",
    "MulAndSilu",
    "NewGELU",
    "QKNormRope",
    "QuickGELU",
    "RMSNorm",
    "RMSNormGated",
    "ReLUSquared",
    "RotaryEmbedding",
    "ScaledActivation",
    "SiluAndMul",
    "SiluAndMulWithClamp",
    "SwigluOAIAndMul",
    "clear_rope_cache",
    "get_act_and_mul_fn",
    "get_act_fn",
    "get_rope",
]
