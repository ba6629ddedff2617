# SPDX-License-Identifier: Apache-2.0
"""Gated activations as XLA expressions.

XLA makes one fusion of each, which reads and writes every element once, and may fuse it further
with what comes before and after: a Pallas kernel, whose inputs and outputs must be in memory,
could only lose. What the expressions add to the reference is its arithmetic: torch-xla computes
silu in bf16, XLA drops the rounding before the product, and its ``clamp`` loses NaN.

Here ``x [..., 2 d]`` is bf16, fp16, fp32 or, with JAX's ``enable_x64``, fp64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from ._blocks import Array, rounded
from ._math import sigmoid, silu


def _gelu(x: Array) -> Array:
    return x * (0.5 * lax.erfc(x * -math.sqrt(0.5)))


def _gelu_tanh(x: Array) -> Array:
    inner = x * x * x * 0.044715 + x
    return x * sigmoid(2.0 * math.sqrt(2.0 / math.pi) * inner)


def _at_most(x: Array, limit: float) -> Array:
    """NaN stays NaN."""
    return jnp.where(x > limit, limit, x)


def _within(x: Array, limit: float) -> Array:
    return jnp.where(x < -limit, -limit, _at_most(x, limit))


def _widened(x: Array) -> Array:
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def _halves(x: Array) -> tuple[Array, Array]:
    # Widened after the split: XLA would write the widened whole to memory.
    first, second = jnp.split(x, 2, -1)
    return _widened(first), _widened(second)


def _gated(x: Array, gate: Array, up: Array, activation: Callable[[Array], Array]) -> Array:
    return (rounded(activation(gate), x.dtype, True) * up).astype(x.dtype)


def _in_dtype(value: float, x: Array) -> float:
    """A threshold as the reference meets it, rounded to the dtype of ``x``."""
    return float(np.asarray(value).astype(x.dtype))


def silu_and_mul(x: Array) -> Array:
    return _gated(x, *_halves(x), silu)


def mul_and_silu(x: Array) -> Array:
    up, gate = _halves(x)
    return _gated(x, gate, up, silu)


def gelu_and_mul(x: Array, *, approximate: str = "none") -> Array:
    return _gated(x, *_halves(x), _gelu if approximate == "none" else _gelu_tanh)


def fatrelu_and_mul(x: Array, *, threshold: float = 0.0) -> Array:
    edge = _in_dtype(threshold, x)
    return _gated(x, *_halves(x), lambda gate: jnp.where(gate <= edge, 0.0, gate))


def silu_and_mul_with_clamp(x: Array, *, limit: float) -> Array:
    edge = _in_dtype(limit, x)
    gate, up = _halves(x)
    return _gated(x, _at_most(gate, edge), _within(up, edge), silu)


def swigluoai_and_mul(x: Array, *, alpha: float = 1.702, limit: float = 7.0) -> Array:
    even, odd = (lax.slice_in_dim(x, start, None, 2, -1) for start in (0, 1))
    gate, up = _at_most(_widened(even), limit), _within(_widened(odd), limit)
    return ((up + 1.0) * (gate * sigmoid(alpha * gate))).astype(x.dtype)
