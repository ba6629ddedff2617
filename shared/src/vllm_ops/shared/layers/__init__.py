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
from .layernorm import GemmaRMSNorm, LayerNorm, RMSNorm, RMSNormGated
from .rotary import RotaryEmbedding, get_rope

__all__ = [
    "GELU",
    "XIELU",
    "FastGELU",
    "FatreluAndMul",
    "GELUTanh",
    "GeluAndMul",
    "GemmaRMSNorm",
    "LayerNorm",
    "MulAndSilu",
    "NewGELU",
    "QuickGELU",
    "RMSNorm",
    "RMSNormGated",
    "ReLUSquared",
    "RotaryEmbedding",
    "ScaledActivation",
    "SiluAndMul",
    "SiluAndMulWithClamp",
    "SwigluOAIAndMul",
    "get_act_and_mul_fn",
    "get_act_fn",
    "get_rope",
]
