# SPDX-License-Identifier: Apache-2.0
"""The kernels, for JAX alone: nothing here imports torch, so a JAX engine can call them too.

``activation`` holds XLA expressions, the others Pallas kernels. Every function takes arrays and
static keywords; ``interpret`` is what ``pallas_call`` takes, and must not be False where the
function runs on a CPU client. jax 0.7.1 and newer.
"""
