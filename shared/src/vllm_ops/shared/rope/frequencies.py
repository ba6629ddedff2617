# SPDX-License-Identifier: Apache-2.0
"""The inverse frequencies that every rotary scaling starts from.

Everything here is computed on the CPU in fp32, whatever the default device or dtype is. The angle
of a far position is ``position * inv_freq`` in fp32, so one ulp in ``inv_freq`` moves the angle at
position 15962 by about 1e-3: a table agrees with the model's own code only if it repeats the same
fp32 operations, and tables agree between devices only if all of them come from one place.
"""

from __future__ import annotations

import torch


def inverse_frequencies(dim: int, base: float, *, exponent_dim: int | None = None) -> torch.Tensor:
    """``base ** (-2i / dim)`` for every pair ``i`` of a rotary width ``dim``.

    Args:
        dim: elements that turn, twice the number of pairs. An odd width gives one more pair than
            ``dim // 2``, with exponents over the odd width, as ``transformers`` computes it.
        base: the wavelength base (``rope_theta``).
        exponent_dim: what the exponent is divided by, where that is not ``dim``.

    Returns:
        fp32 tensor ``[(dim + 1) // 2]`` on the CPU, in radians per position.
    """
    return 1.0 / wavelength_steps(dim, base, exponent_dim=exponent_dim)


def wavelength_steps(dim: int, base: float, *, exponent_dim: int | None = None) -> torch.Tensor:
    """``base ** (2i / dim)``, the reciprocals of ``inverse_frequencies``; arguments as there."""
    steps = torch.arange(0, dim, 2, dtype=torch.int64, device="cpu").to(torch.float32)
    exponents = steps / (exponent_dim if exponent_dim is not None else dim)
    result: torch.Tensor = base**exponents
    return result
