# SPDX-License-Identifier: Apache-2.0
"""The operators: one schema each in the torch library ``vllm_ops``, with checks, fakes and
gradients."""

from . import activation, layernorm, linear, rotary
from ._define import NAMESPACE, OPS, Op, library
from ._register import register_in_place, register_kernel

__all__ = [
    "NAMESPACE",
    "OPS",
    "Op",
    "activation",
    "layernorm",
    "library",
    "linear",
    "register_in_place",
    "register_kernel",
    "rotary",
]
