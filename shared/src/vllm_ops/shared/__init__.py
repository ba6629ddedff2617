# SPDX-License-Identifier: Apache-2.0
"""Device-portable fused operators for LLM inference: one interface, one reference per operator.

Importing this package initialises no device, starts no thread and reads no entry point.
"""

from . import backends, functional, policy
from .calls import count_calls
from .custom_op import Change, CustomOp, Decision, DispatchError, redispatch
from .explain import explain
from .layers import *  # noqa: F403
from .layers import __all__ as _layers
from .policy import custom_ops, device, strict
from .quantize import quantize_int8

__version__ = "0.1.0"

__all__ = [  # noqa: PLE0604
    "Change",
    "CustomOp",
    "Decision",
    "DispatchError",
    "backends",
    "count_calls",
    "custom_ops",
    "device",
    "explain",
    "functional",
    "policy",
    "quantize_int8",
    "redispatch",
    "strict",
    *_layers,
]
