# SPDX-License-Identifier: Apache-2.0
"""Functions of fp32 values, the same in Pallas kernels and XLA expressions."""

from __future__ import annotations

import jax.numpy as jnp

from ._blocks import Array


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + jnp.exp(-x))


def silu(x: Array) -> Array:
    return x / (1.0 + jnp.exp(-x))
